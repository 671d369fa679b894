#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "harness/space/definition.h"
#include "harness/store/store.h"

namespace pinion::harness {

// The parts of a definition that scoring needs.
struct ScoreRule {
  ScoreRule(int output_tokens, double within = 0.05)
      : output_len(output_tokens), cores_within(within) {}
  ScoreRule(const Definition& definition)
      : ScoreRule(definition.workload.load.shape.output_len(), definition.cores_within) {}
  int output_len;
  double cores_within;  // share of the throughput that halving the cores may cost
};

// A sample of a trial; nullopt if it has none at that level.
std::optional<double> ValueOf(const TrialRow& trial, const char* metric, LoadLevel level);

// The log of the quantity that an objective maximises, for one trial; nullopt if the trial lacks a
// number.
//   throughput  output tokens/s of the offline batch
//   latency     1 / (TTFT + (output_len - 1) * TPOT) at concurrency 1
//   balanced    the geometric mean of both; only ratios of it mean anything
//   goodput     the load at which the share of requests that meet the SLO falls to `attain`
//   cores       throughput, of which halving the cores may cost `cores_within`: the fewest cores
//               within that distance
//   energy      tokens per joule of all packages
//   cost        1 / cost per token
//   itl_p95@8   1 / that sample at 8 clients; @2.5rps: at 2.5 requests/s; as well for the other
//               latencies under load
std::optional<double> LogScore(const TrialRow& trial, Objective objective, const ScoreRule& rule);

// Cost of a million output tokens of the trial's batch, by the definition's prices; nullopt without
// prices, or if the trial lacks a number.
std::optional<double> CostPerMillionTokens(const TrialRow& trial, const Definition& definition);

// A round of one phase. Scores are compared within such a round.
using RoundKey = std::pair<Phase, int>;

// One candidate's log scores (copy 0, or the baseline's copy 1) by round. A disturbed trial counts
// by its repetition; if that was disturbed too, by the mean of both.
std::map<RoundKey, double> ScoresOf(const std::vector<TrialRow>& trials, int candidate, int copy,
                                    Objective objective, const ScoreRule& rule);

// The log scores of one round in the order of measurement, by candidate; the
// baseline has two. Disturbed trials count as in ScoresOf.
std::vector<std::pair<int, double>> ScoresInOrder(const std::vector<TrialRow>& trials,
                                                  const RoundKey& round, Objective objective,
                                                  const ScoreRule& rule);

// Differences between the baseline's two trials of a round, in all phases: noise alone.
std::vector<double> BaselineDifferences(const std::vector<TrialRow>& trials, Objective objective,
                                        const ScoreRule& rule);

}  // namespace pinion::harness
