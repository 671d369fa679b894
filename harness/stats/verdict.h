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
  std::string name;      // for the sentence
  ByRound log_ratios;    // of the race's rounds, from which the candidate is chosen
  ByRound confirmation;  // of fresh rounds, for whichever objective they were run; may be empty
  RaceStatus status = RaceStatus::kIn;              // in the race
  std::optional<Race::Gap> to_leader, to_baseline;  // by the race's scale; unset: no common round
  int settings_off_default = 0;                     // "simplest": fewest of these,
  int cores = 0;                                    // then fewest cores
};

// Ratio to the baseline (1.05: 5 % better) from log ratios: median and interval are those of the
// logs, brought back; `mad` stays in logs, where it is a fraction. With a lag-1 autocorrelation
// above 0.3 at n >= 20 neighbours are merged first, so n may be half the number of rounds. The
// interval covers at least `level`; there is none if the rounds are too few for it.
Estimate EstimateRatio(std::span<const double> log_ratios, double level = 0.95);

// The best evidence on a candidate: fresh rounds if there are kMinSamples of them, else those of
// the choice.
const ByRound& Evidence(const PairedSeries& series);

// The smallest difference that can be resolved, as a fraction (0.03: 3 %): the 95th percentile of
// |median of n differences of the baseline to its own second copy|, by resampling
// `baseline_log_ratios` with a fixed seed. 0 if there are fewer than 3 of them.
double NoiseFloor(std::span<const double> baseline_log_ratios, size_t n);

enum class Outcome {
  kWinner,        // one candidate beats the baseline beyond interval and floor
  kBaselineBest,  // everything else was measured as worse; published as "default_best"
  kNoDifference,  // no difference found, simplest configuration recommended
  kTooFewRounds,  // not enough rounds to tell; the baseline is recommended
  kNoData,        // the baseline has no sample
};
const char* Name(Outcome outcome);  // "winner", "default_best", "no_difference", ...

struct Verdict {
  std::string objective;  // "throughput", "latency", "balanced"
  Outcome outcome = Outcome::kNoData;
  int recommended = 0;     // candidate id: what to launch
  int best = 0;            // candidate id: the best by its estimate, significant or not
  Estimate ratio;          // of `recommended` to the baseline; {n, 1, ...} for the baseline itself
  Estimate best_ratio;     // of `best`
  std::vector<int> tied;   // candidates not distinguishable from the recommended one
  double floor = 0;        // fraction
  size_t rounds = 0;       // paired rounds behind the decision
  bool confirmed = false;  // its numbers come from fresh rounds alone
  std::string sentence;    // the verdict in words, with its numbers and its confidence
};

struct VerdictInput {
  std::string objective;
  int baseline = 0;
  std::string baseline_name = "the default";
  size_t baseline_rounds = 0;  // rounds in which the baseline was measured
  std::optional<int> leader;   // of the race at its end; unset: there was no race
  bool race_over = false;      // this objective's race was decided, not cut off
  std::vector<double>
      baseline_log_ratios;  // the baseline's second copy against the first, all rounds
  std::vector<PairedSeries>
      contestants;  // without the baseline; failed and infeasible ones left out
};

// Decides one objective. The chosen candidate must beat the baseline beyond its interval and the
// floor, on its fresh rounds if there are at least kMinSamples, else on the rounds that it was
// chosen in, and then beyond the wider interval that the best of several needs. Fresh rounds count
// for this objective whichever one asked for them: a candidate that was confirmed for another
// objective and beats the baseline here is recommended, in place of the chosen one if it beats that
// one too. A baseline that leads a race that is over needs no confirmation.
Verdict Decide(const VerdictInput& input);

}  // namespace pinion::harness
