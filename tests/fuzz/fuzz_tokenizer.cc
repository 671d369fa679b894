#include <span>
#include <string>

#include "engine/base/check.h"
#include "engine/text/hf_tokenizer.h"
#include "tests/fuzz/fuzz.h"

namespace pinion::fuzz {
namespace {

using Ids = std::vector<int32_t>;

// Words, spaces, digits, marks, four scripts, and bytes that are no UTF-8.
constexpr std::string_view kTexts[] = {"", " ", "Hello, w\xC3\xB6rld!  I'll\tpay 1,234\n\n",
                                       "\xE4\xBD\xA0\xE5\xA5\xBD a\xCC\x81\xEF\xB7\xBA",
                                       "<s> aaaaaaaab\xFF\xED\xA0\x80 \xF0\x9F\x99\x82\xD8\xB9"};

std::string Pushed(StreamDecoder& decoder, std::span<const int32_t> ids) {
  std::string text;
  for (const int32_t id : ids) text += decoder.Push(id);
  return text;
}

// A stream that is copied on its way decodes to the same text as the list.
void CheckStream(const pinion::Tokenizer& tokenizer, const Ids& ids) {
  const std::span<const int32_t> all(ids), begin = all.first(ids.size() / 2),
                                           end = all.subspan(begin.size());
  StreamDecoder first(tokenizer, {}, false, pinion::Tokenizer::StreamMode::kExact);
  const std::string text = Pushed(first, begin);
  StreamDecoder second(first);
  const std::string whole = tokenizer.Decode(ids, false);
  std::string one = text + Pushed(first, end), other = text + Pushed(second, end);
  CHECK(one + first.Flush() == whole);
  CHECK(other + second.Flush() == whole);
  StreamDecoder eager(tokenizer, begin, true);
  (void)Pushed(eager, end);
  (void)eager.Flush();
}

}  // namespace

void Tokenizer(std::string_view text) {
  const auto json = Json::Parse(text);
  if (!json) return;
  const Json* config = json->Find("config");  // ours, so that one file holds both
  const auto tokenizer = HfTokenizer::Make(*json, config ? *config : Json());
  if (!tokenizer) {
    CHECK(!tokenizer.error().message.empty());
    return;
  }
  for (const std::string_view each : kTexts) {
    const auto ids = (*tokenizer)->Encode(each, true);
    if (!ids) continue;
    for (const int32_t id : *ids) CHECK(id >= 0);
    CheckStream(**tokenizer, *ids);
  }
}

}  // namespace pinion::fuzz
