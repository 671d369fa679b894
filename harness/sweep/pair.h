#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "harness/space/definition.h"
#include "harness/stats/estimate.h"
#include "harness/stats/verdict.h"
#include "harness/store/store.h"

namespace pinion::harness {

// Two configurations against each other and nothing else: no choice was made among several, so
// every round counts, and one interval at 99 % (kPairLevel) decides.
struct PairVerdict {
  enum class Kind { kNoDifference, kBetter, kWorse, kTooFewRounds };
  Kind kind = Kind::kTooFewRounds;
  Objective objective = Objective::kBalanced;
  Estimate ratio;        // of the second to the first; above 1: the second is better
  double floor = 0;      // half of the interval: smaller differences cannot be told, a fraction
  double threshold = 0;  // smallest difference that counts, a fraction
};
const char* Name(PairVerdict::Kind kind);  // "no difference", "better", "worse", "too few rounds"

// Candidate 1 against the baseline, by the rounds that have both (stats/exchanges.h). There is a
// difference if the interval excludes 1 and the estimate exceeds the definition's epsilon.
PairVerdict JudgePair(const std::vector<TrialRow>& trials, Objective objective,
                      const Definition& definition);

// The same as a sweep's verdict, so that its report agrees with the comparison: the rounds of the
// race count as well, and nothing is corrected for a choice.
Verdict AsVerdict(const PairVerdict& pair);

// {"verdict","ratio":{"estimate","low","high"},"objective","rounds","floor","threshold"}; low and
// high are null if there are too few rounds.
Json ToJson(const PairVerdict& verdict);

// "B is 4.9 % slower than A (balanced; ...)"
std::string Render(const PairVerdict& verdict, const std::string& a, const std::string& b);

}  // namespace pinion::harness
