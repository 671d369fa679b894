#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "harness/space/definition.h"
#include "harness/store/store.h"

namespace pinion::harness {

// The log of what an objective maximises, of one trial; nullopt where the trial lacks a number.
//   throughput  output tokens/s of the offline batch
//   latency     1 / (TTFT + (output_len - 1) * TPOT) at concurrency 1
//   balanced    the geometric mean of both; only ratios of it mean anything
std::optional<double> LogScore(const TrialRow& trial, Objective objective, int output_len);

// A round of one phase: what scores are paired within.
using RoundKey = std::pair<Phase, int>;

// One candidate's log scores (copy 0, or the anchor's copy 1) by round. A disturbed trial counts by
// its repetition; where that was disturbed too, by the mean of both.
std::map<RoundKey, double> ScoresOf(const std::vector<TrialRow>& trials, int candidate, int copy,
                                    Objective objective, int output_len);

// Differences of the anchor's two runs of a round, of all phases: what noise alone does.
std::vector<double> AnchorDifferences(const std::vector<TrialRow>& trials, Objective objective,
                                      int output_len);

}  // namespace pinion::harness
