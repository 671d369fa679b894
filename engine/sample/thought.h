#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace pinion {

// The marks and the budget of an answer's reasoning, in tokens.
struct ThoughtRules {
  int budget = -1;  // tokens of reasoning, those in the prompt included; -1: any number
  // The reasoning lies between `begin` and `end`. Either none is empty, or all are: then nothing is
  // looked for.
  std::vector<int32_t> begin, end;
  // The tokens that are written once the budget is spent; they begin with `end`.
  std::vector<int32_t> forced;
  // Tokens that may precede `begin`, sorted; after any other the answer has no reasoning.
  std::vector<int32_t> blank;
  // Reasoning may begin at any place, and again (Harmony's messages); `blank` is not needed.
  bool anywhere = false;
  // The prompt ends within the reasoning, which has so many tokens there already; -1: it does not.
  int in_prompt = -1;

  bool any() const { return !end.empty(); }
  bool operator==(const ThoughtRules&) const = default;
};

// Follows the reasoning in one answer, token by token. Thread rule: one call at a time.
class ThoughtTracker {
 public:
  explicit ThoughtTracker(ThoughtRules rules);

  // The one token that may come next; unset: any.
  std::optional<int32_t> forced() const;
  void Take(int32_t token);

  // The last token was one of reasoning or of the mark that began it: a grammar of the text after
  // the reasoning has to wait.
  bool within() const { return part_ == Part::kThought; }
  // The next token of the mark that would begin the reasoning; unset if that cannot begin now.
  std::optional<int32_t> opening() const;
  bool opened() const { return part_ == Part::kBefore && matched_ > 0; }

 private:
  enum class Part { kBefore, kThought, kAfter };

  void TakeBefore(int32_t token);
  void TakeThought(int32_t token);
  void EndThought();

  ThoughtRules rules_;
  Part part_ = Part::kBefore;
  size_t matched_ = 0;  // tokens of the next mark, or of `forced`, that have just come
  size_t spent_ = 0;    // tokens of reasoning
};

}  // namespace pinion
