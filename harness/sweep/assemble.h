#pragma once

#include <optional>
#include <vector>

#include "harness/report/results.h"
#include "harness/stats/verdict.h"
#include "harness/store/store.h"
#include "harness/sweep/state.h"

namespace pinion::harness {

// The log of what an objective maximises, of one trial; nullopt where the trial lacks a number.
//   throughput  output tokens/s of the offline batch
//   latency     1 / (TTFT + (output_len - 1) * TPOT) at concurrency 1
//   balanced    the geometric mean of both; only ratios of it mean anything
std::optional<double> LogScore(const TrialRow& trial, Objective objective, int output_len);

// One objective's differences to the anchor, round by round, from all trials.
VerdictInput InputFor(Objective objective, const Definition& definition,
                      const std::vector<CandidateRow>& candidates,
                      const std::vector<TrialRow>& trials);

// Rounds in which the anchor and every candidate that is still alive was measured.
int RoundsDone(const std::vector<CandidateRow>& candidates, const std::vector<TrialRow>& trials,
               bool confirmation);

// Everything, from what the store holds.
Results Assemble(const SweepMeta& meta, const SweepProgress& progress,
                 const std::vector<CandidateRow>& candidates, const std::vector<TrialRow>& trials);

}  // namespace pinion::harness
