#include "engine/serve/thought_marks.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/strings.h"

namespace pinion {
namespace {

// gpt-oss reasons in messages of a channel, as often as it likes; its answer is the first message
// of the channel `final`.
constexpr ThoughtFormat kHarmonyThought{"", "<|channel|>analysis<|message|>", "<|end|>", true,
                                        true};
constexpr std::string_view kHarmonyAnswer = "<|start|>assistant<|channel|>final<|message|>";

bool EndsWith(std::span<const int32_t> tokens, const std::vector<int32_t>& mark) {
  return tokens.size() >= mark.size() &&
         std::equal(mark.begin(), mark.end(), tokens.last(mark.size()).begin());
}

// A mark that is one token is that token, whatever else a tokenizer does at the beginning of a
// text. Empty: the vocabulary cannot write it.
std::vector<int32_t> Encode(const Tokenizer& tokenizer, std::string_view text, size_t vocabulary) {
  auto ids = tokenizer.Encode(text, /*add_special_tokens=*/false);
  if (const auto id = tokenizer.TokenId(text)) ids = std::vector<int32_t>{*id};
  const bool known = ids && std::all_of(ids->begin(), ids->end(), [&](int32_t id) {
                       return static_cast<size_t>(id) < vocabulary;
                     });
  if (!known || tokenizer.Decode(*ids, /*skip_special_tokens=*/false) != text) return {};
  return std::move(*ids);
}

std::vector<int32_t> BlankTokens(const Tokenizer& tokenizer) {
  std::vector<int32_t> blank;
  for (int32_t id = 0; static_cast<size_t>(id) < tokenizer.vocabulary_size(); ++id) {
    if (tokenizer.is_special(id)) continue;
    const std::string text = tokenizer.Decode(std::span(&id, 1), /*skip_special_tokens=*/false);
    if (!text.empty() && Trim(text).empty()) blank.push_back(id);
  }
  return blank;
}

}  // namespace

std::optional<ThoughtMarks> ThoughtMarks::Find(const ThoughtFormat* format,
                                               const Tokenizer& tokenizer, size_t vocabulary) {
  if (!format) return std::nullopt;
  const bool harmony = format->harmony;
  const ThoughtFormat& marks = harmony ? kHarmonyThought : *format;
  ThoughtMarks found(tokenizer);
  found.rules_.begin = Encode(tokenizer, marks.begin, vocabulary);
  found.rules_.end = found.rules_.forced = Encode(tokenizer, marks.end, vocabulary);
  if (found.rules_.begin.empty() || found.rules_.end.empty()) return std::nullopt;
  if (!harmony) {
    found.rules_.blank = BlankTokens(tokenizer);
    return found;
  }
  const std::vector<int32_t> answer = Encode(tokenizer, kHarmonyAnswer, vocabulary);
  if (answer.empty()) return std::nullopt;
  found.rules_.forced.insert(found.rules_.forced.end(), answer.begin(), answer.end());
  found.rules_.anywhere = true;
  return found;
}

int ThoughtMarks::TokensIn(std::span<const int32_t> prompt) const {
  for (size_t count = 0; count < prompt.size(); ++count) {
    const auto before = prompt.first(prompt.size() - count);
    if (EndsWith(before, rules_.begin)) return static_cast<int>(count);
    if (EndsWith(before, rules_.end) || tokenizer_->is_special(before.back())) return -1;
  }
  return -1;
}

}  // namespace pinion
