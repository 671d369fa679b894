#include "engine/text/tokenizer.h"

namespace pinion {

// Special tokens at the end stay there when a text is cut.
Result<Encoding> Tokenizer::EncodeWhole(std::string_view text,
                                        std::optional<std::string_view> second,
                                        size_t max_tokens) const {
  if (second)
    return Fail(ErrorCode::kUnsupported,
                "this tokenizer does not say how it joins a pair of texts, want a tokenizer.json "
                "that does");
  Encoding whole;
  PINION_ASSIGN(whole.ids, Encode(text, true));
  std::vector<int32_t>& ids = whole.ids;
  if (ids.size() > max_tokens) {
    auto tail = ids.end();
    while (tail != ids.begin() && is_special(tail[-1]) &&
           static_cast<size_t>(ids.end() - tail) < max_tokens)
      --tail;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(max_tokens) - (ids.end() - tail), tail);
  }
  whole.types.resize(ids.size());
  return whole;
}

}  // namespace pinion
