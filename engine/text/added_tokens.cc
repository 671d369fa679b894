#include "engine/text/added_tokens.h"

#include <algorithm>

#include "engine/base/strings.h"
#include "engine/text/unicode.h"
#include "engine/text/utf8.h"

namespace pinion {
namespace {

// The last character before `end`, which must not be 0.
Utf8Step LastCharacter(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (text[begin] & 0xC0) == 0x80) --begin;
  return DecodeUtf8(text.substr(begin, end - begin));
}

bool StandsAlone(std::string_view text, size_t begin, size_t end) {
  const bool word_before = begin > 0 && IsWordCharacter(LastCharacter(text, begin).code_point);
  const bool word_after =
      end < text.size() && IsWordCharacter(DecodeUtf8(text.substr(end)).code_point);
  return !word_before && !word_after;
}

size_t SkipSpaceBackwards(std::string_view text, size_t begin, size_t floor) {
  while (begin > floor) {
    const Utf8Step step = LastCharacter(text, begin);
    if (!IsWhitespace(step.code_point)) break;
    begin -= step.length;
  }
  return std::max(begin, floor);
}

size_t SkipSpaceForwards(std::string_view text, size_t end) {
  while (end < text.size()) {
    const Utf8Step step = DecodeUtf8(text.substr(end));
    if (!IsWhitespace(step.code_point)) break;
    end += step.length;
  }
  return end;
}

}  // namespace

Result<AddedToken> AddedToken::Read(const Json& entry) {
  AddedToken token;
  PINION_ASSIGN(token.content, Require<std::string>(entry, "content"));
  PINION_ASSIGN(token.single_word, Optional<bool>(entry, "single_word", false));
  PINION_ASSIGN(token.lstrip, Optional<bool>(entry, "lstrip", false));
  PINION_ASSIGN(token.rstrip, Optional<bool>(entry, "rstrip", false));
  PINION_ASSIGN(token.special, Optional<bool>(entry, "special", false));
  PINION_ASSIGN(token.normalized, Optional<bool>(entry, "normalized", !token.special));
  return token;
}

uint32_t AddedTokenMatcher::Child(uint32_t node, unsigned char byte) const {
  for (const auto& [label, child] : nodes_[node].children)
    if (label == byte) return child;
  return 0;
}

void AddedTokenMatcher::Add(const AddedToken& token, std::string_view content) {
  if (content.empty()) return;  // a normaliser may remove everything
  uint32_t node = 0;
  for (char c : content) {
    const auto byte = static_cast<unsigned char>(c);
    uint32_t child = Child(node, byte);
    if (child == 0) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_[node].children.emplace_back(byte, child);
      nodes_.emplace_back();
    }
    node = child;
  }
  if (nodes_[node].token >= 0) return;  // of two tokens with one text, the first counts
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

AddedTokenMatcher::Match AddedTokenMatcher::LongestAt(std::string_view rest) const {
  Match longest;
  uint32_t node = 0;
  for (size_t i = 0; i < rest.size(); ++i) {
    node = Child(node, static_cast<unsigned char>(rest[i]));
    if (node == 0) break;
    if (nodes_[node].token >= 0)
      longest = {i + 1, &tokens_[static_cast<size_t>(nodes_[node].token)]};
  }
  return longest;
}

std::vector<AddedTokenMatcher::Section> AddedTokenMatcher::Split(std::string_view text) const {
  std::vector<Section> sections;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const Match match = LongestAt(text.substr(at));
    if (!match.token) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + match.length;
    at = end;
    const AddedToken& token = *match.token;
    if (token.single_word && !StandsAlone(text, begin, end)) continue;
    if (token.lstrip) begin = std::max(SkipSpaceBackwards(text, begin, 0), done);
    if (token.rstrip) end = SkipSpaceForwards(text, end);
    if (done < begin) sections.push_back({{}, done, begin});
    sections.push_back({token.id, begin, end});
    done = end;
  }
  if (done < text.size()) sections.push_back({{}, done, text.size()});
  return sections;
}

}  // namespace pinion
