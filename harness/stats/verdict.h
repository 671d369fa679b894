#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/stats/estimate.h"
#include "harness/stats/race.h"

namespace pinion::harness {

// Log ratios by round; positive is better.
using ByRound = std::map<int, double>;

// One candidate's log ratios to the baseline, for the rounds that have both.
struct PairedSeries {
  int candidate = 0;
  ByRound log_ratios;                   // of the race's rounds, from which the candidate is chosen
  ByRound confirmation;                 // of fresh rounds; may be empty
  RaceStatus status = RaceStatus::kIn;  // in the race
  std::optional<Race::Gap> to_leader, to_baseline;  // by the race's scale; unset: no common round
  int settings_off_default = 0;                     // "simplest": fewest of these,
  int cores = 0;                                    // then fewest cores
};

// Ratio to the baseline (1.05: 5 % better) from log ratios: median and interval are those of the
// logs, brought back; `mad` stays in logs, where it is a fraction. With a lag-1 autocorrelation
// above 0.3 at n >= 20 neighbours are merged first, so n may be half the number of rounds. The
// interval covers at least `level`; there is none if the rounds are too few for it.
Estimate EstimateRatio(std::span<const double> log_ratios, double level = 0.95);

// The smallest difference that can be resolved, as a fraction (0.03: 3 %): the 95th percentile of
// |median of n differences of the baseline to its own second copy|, by resampling
// `baseline_log_ratios` with a fixed seed. 0 if there are fewer than 3 of them.
double NoiseFloor(std::span<const double> baseline_log_ratios, size_t n);

// Whether a ratio lies further from 1 than noise carries it, which multiplies or divides by
// 1 + floor: a floor above 100 % can still be exceeded downwards.
bool ExceedsFloor(double ratio, double floor);

enum class Outcome {
  kWinner,        // one candidate beats the baseline: interval, floor and epsilon agree
  kSmallGain,     // one is better, but by less than the floor or epsilon; "real_but_small"
  kBaselineBest,  // everything else was measured as worse; published as "default_best"
  kNoDifference,  // no difference found, simplest configuration recommended
  kTooFewRounds,  // not enough rounds to tell; the baseline is recommended
  kNoData,        // the baseline has no sample
};
const char* Name(Outcome outcome);  // "winner", "default_best", "no_difference", ...

struct Verdict {
  std::string objective;  // "throughput", "latency", "balanced"
  Outcome outcome = Outcome::kNoData;
  int recommended = 0;    // id of the candidate to launch
  int best = 0;           // candidate id: the best by its estimate, significant or not
  Estimate ratio;         // of `recommended` to the baseline; {n, 1, ...} for the baseline itself
  Estimate best_ratio;    // of `best`
  std::vector<int> tied;  // candidates not distinguishable from the recommended one
  std::optional<int> runner_up;    // the next best beside the winner; unset without a winner
  Estimate runner_up_ratio;        // of the winner to it, over the rounds that both have
  std::map<int, Estimate> tested;  // confirmed candidates' ratios, at the levels of their tests
  size_t comparisons = 0;          // tests among which the level of the intervals is corrected
  double floor = 0;                // fraction
  size_t rounds = 0;               // paired rounds behind the decision
  bool confirmed = false;          // its numbers come from fresh rounds alone
  // With kTooFewRounds: the race's leader, if others had fresh rounds and it had none.
  std::optional<int> unconfirmed;
};

struct VerdictInput {
  std::string objective;
  int baseline = 0;
  size_t baseline_rounds = 0;  // rounds in which the baseline was measured
  std::optional<int> leader;   // of the race at its end; unset: there was no race
  bool race_over = false;      // this objective's race was decided, not cut off
  double epsilon = 0.02;       // smallest difference worth having, a fraction
  std::vector<double>
      baseline_log_ratios;  // the baseline's second copy against the first, all rounds
  std::vector<PairedSeries>
      contestants;  // without the baseline; failed and infeasible ones left out
};

// Decides all objectives of a sweep together. A candidate is recommended if its interval over the
// fresh rounds lies above 1 and its estimate exceeds the floor and epsilon. Each candidate that was
// confirmed is tested in each objective, and Holm's procedure keeps the chance of any wrong finding
// among all these tests to kFamilyLevel; the intervals are those of the level at which a test was
// decided. Without fresh rounds nothing is recommended; a baseline that leads a race that is over
// needs none. One verdict per input, in their order.
std::vector<Verdict> Decide(const std::vector<VerdictInput>& objectives);

}  // namespace pinion::harness
