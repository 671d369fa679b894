#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "harness/stats/estimate.h"
#include "harness/stats/load_level.h"

namespace pinion::harness {

// One number of one configuration, measured in both runs.
struct MetricDifference {
  enum class Kind { kSame, kBetter, kWorse, kTooFewRounds };
  std::string candidate, metric;
  LoadLevel level;
  double a = 0, b = 0;  // medians over the paired rounds, in the metric's unit
  Estimate ratio;       // of b to a, above 1: b is better; over rounds that both have
  double floor = 0;     // smallest difference that both runs could resolve, a fraction
  Kind kind = Kind::kTooFewRounds;
  std::vector<double> log_ratios = {};  // the ratio by round
};
const char* Name(MetricDifference::Kind kind);  // "same", "better", "worse", "too few rounds"

struct RunComparison {
  std::string a, b;            // the folders
  std::string a_what, b_what;  // version, commit, start
  double threshold = 0;        // smallest difference that counts, a fraction
  std::vector<MetricDifference> differences;
  std::vector<std::string> notes;  // other differences between the runs, and candidates in only one
  // Why there is no verdict: "the model is "a" in one and "b" in the other"; empty if there is
  // one.
  std::vector<std::string> obstacles;

  size_t Count(MetricDifference::Kind kind) const;
  bool any_worse() const { return Count(MetricDifference::Kind::kWorse) > 0; }
};

// Compares run B with run A, each a sweep's folder or its results.db. Rounds of the same number had
// the same prompts, so they are paired: a difference is the median of the rounds' log ratios with
// its distribution-free interval, and it counts if the interval excludes 1 and the estimate
// exceeds both `threshold` and the floor (from the baseline's two trials in every round of both
// runs). Holm's procedure corrects the level of the intervals for the number of differences, so
// that any of them is found by chance in at most kFamilyLevel of comparisons. The two runs took
// place at different times: drift between them is part of every difference.
//
// Errors: no sweep there (kNotFound); runs that cannot be compared, with the reason: another
// machine, CPUs, model, workload, trial limit or seed, nothing measured in common, fewer
// common rounds than the corrected level needs (kUsage).
Result<RunComparison> Compare(const std::string& a, const std::string& b, double threshold);
// The same for showing any two runs side by side: the reasons against a verdict are in
// `obstacles`, and runs that measured different things have no differences. Error: kNotFound.
Result<RunComparison> CompareAnyway(const std::string& a, const std::string& b, double threshold);

// {"a","b","threshold","worse":n,"better":n,"differences":[{"candidate","metric","unit",
//  "concurrency","a","b","ratio":{"median","low","high","n"},"floor","kind"}],"notes":[],"obstacles":[]}
Json ToJson(const RunComparison& comparison);
std::string Render(const RunComparison& comparison);

}  // namespace pinion::harness
