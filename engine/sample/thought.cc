#include "engine/sample/thought.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"

namespace pinion {
namespace {

// How many of the mark's first tokens have just come, if `matched` had before `token`. Shorter than
// the mark, `matched` may be kept in part: of the mark 1 1 2, the tokens 1 1 1 leave two.
size_t Match(const std::vector<int32_t>& mark, size_t matched, int32_t token) {
  while (true) {
    if (mark[matched] == token) return matched + 1;
    if (matched == 0) return 0;
    // The longest shorter beginning of the mark that its first `matched` tokens end with.
    size_t next = matched - 1;
    while (next > 0 && !std::equal(mark.begin(), mark.begin() + static_cast<ptrdiff_t>(next),
                                   mark.begin() + static_cast<ptrdiff_t>(matched - next)))
      --next;
    matched = next;
  }
}

}  // namespace

ThoughtTracker::ThoughtTracker(ThoughtRules rules) : rules_(std::move(rules)) {
  CHECK(!rules_.begin.empty() && !rules_.end.empty()) << "reasoning without marks";
  CHECK(rules_.forced.size() >= rules_.end.size() &&
        std::equal(rules_.end.begin(), rules_.end.end(), rules_.forced.begin()))
      << "reasoning that is not ended by its mark";
  if (rules_.in_prompt < 0) return;
  part_ = Part::kThought;
  spent_ = static_cast<size_t>(rules_.in_prompt);
}

std::optional<int32_t> ThoughtTracker::forced() const {
  const bool spent =
      part_ == Part::kThought && rules_.budget >= 0 && spent_ >= static_cast<size_t>(rules_.budget);
  if (!spent) return std::nullopt;
  return rules_.forced[matched_];
}

std::optional<int32_t> ThoughtTracker::opening() const {
  return part_ == Part::kBefore ? std::optional(rules_.begin[matched_]) : std::nullopt;
}

void ThoughtTracker::Take(int32_t token) {
  if (part_ == Part::kBefore)
    TakeBefore(token);
  else if (part_ == Part::kThought)
    TakeThought(token);
}

void ThoughtTracker::TakeBefore(int32_t token) {
  if (rules_.anywhere) {
    matched_ = Match(rules_.begin, matched_, token);
  } else if (token == rules_.begin[matched_]) {
    ++matched_;
  } else if (matched_ > 0 || !std::binary_search(rules_.blank.begin(), rules_.blank.end(), token)) {
    part_ = Part::kAfter;
    return;
  }
  if (matched_ < rules_.begin.size()) return;
  part_ = Part::kThought;
  matched_ = 0;
}

void ThoughtTracker::TakeThought(int32_t token) {
  if (forced() == token) {
    if (++matched_ == rules_.forced.size()) EndThought();
    return;
  }
  ++spent_;
  matched_ = Match(rules_.end, matched_, token);
  if (matched_ < rules_.end.size()) return;
  spent_ -= std::min(spent_, matched_);  // the mark is not reasoning
  EndThought();
}

void ThoughtTracker::EndThought() {
  part_ = rules_.anywhere ? Part::kBefore : Part::kAfter;
  matched_ = 0;
}

}  // namespace pinion
