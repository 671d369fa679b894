#include "engine/text/word_piece.h"

#include "engine/base/strings.h"

namespace pinion {
namespace {

size_t CountCharacters(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (c & 0xC0) != 0x80;
  return count;
}

}  // namespace

Result<WordPiece> WordPiece::Make(const Json& model) {
  WordPiece piece;
  PINION_ASSIGN(piece.vocabulary_, ReadVocabulary(model));
  std::vector<std::pair<std::string_view, int32_t>> tokens;
  for (const auto& [token, id] : model.Find("vocab")->object())
    tokens.emplace_back(token, static_cast<int32_t>(id.integer()));
  PINION_ASSIGN(piece.tokens_, PrefixTrie::Make(std::move(tokens)));
  PINION_ASSIGN(const std::string prefix,
                Optional<std::string>(model, "continuing_subword_prefix", "##"));
  piece.inside_ = piece.tokens_.Walk(PrefixTrie::kRoot, prefix);
  piece.continues_ = prefix.empty() || piece.inside_ != PrefixTrie::kNone;
  PINION_ASSIGN(const std::string unk, Optional<std::string>(model, "unk_token", "[UNK]"));
  const auto unk_id = piece.vocabulary_.Find(unk);
  if (!unk_id)
    return Fail(ErrorCode::kCorrupt, StrCat("unk_token '", unk, "' is not in the vocabulary"));
  piece.unk_ = *unk_id;
  PINION_ASSIGN(const int64_t most, Optional<int64_t>(model, "max_input_chars_per_word", 100));
  if (most < 0)
    return Fail(ErrorCode::kCorrupt,
                StrCat("'max_input_chars_per_word' is ", most, ", want 0 or more"));
  piece.max_characters_ = static_cast<size_t>(most);
  return piece;
}

Status WordPiece::Encode(std::string_view word, std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  bool written = CountCharacters(word) <= max_characters_;
  for (size_t at = 0; written && at < word.size();) {
    size_t longest = 0;
    int32_t id = -1;
    uint32_t node = at == 0 ? PrefixTrie::kRoot : inside_;
    for (size_t end = at; end < word.size() && (at == 0 || continues_); ++end) {
      node = tokens_.Child(node, word[end]);
      if (node == PrefixTrie::kNone) break;
      if (tokens_.Token(node) < 0) continue;
      id = tokens_.Token(node);
      longest = end + 1 - at;
    }
    written = longest > 0;
    at += longest;
    if (written) ids.push_back(id);
  }
  if (written) return {};
  ids.resize(before);
  ids.push_back(unk_);
  return {};
}

}  // namespace pinion
