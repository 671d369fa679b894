#include "harness/sweep/score.h"

#include <cmath>

namespace pinion::harness {
namespace {

std::optional<double> ValueOf(const TrialRow& trial, const char* metric, int concurrency) {
  for (const MetricValue& sample : trial.samples)
    if (sample.metric == metric && sample.concurrency == concurrency) return sample.value;
  return std::nullopt;
}

}  // namespace

std::optional<double> LogScore(const TrialRow& trial, Objective objective, int output_len) {
  if (objective == Objective::kBalanced) {
    const auto throughput = LogScore(trial, Objective::kThroughput, output_len);
    const auto latency = LogScore(trial, Objective::kLatency, output_len);
    if (!throughput || !latency) return std::nullopt;
    return (*throughput + *latency) / 2;
  }
  if (objective == Objective::kThroughput) {
    const auto tokens_per_s = ValueOf(trial, "output_tokens_per_s", 0);
    if (!tokens_per_s || *tokens_per_s <= 0) return std::nullopt;
    return std::log(*tokens_per_s);
  }
  const auto ttft_s = ValueOf(trial, "ttft_s", 1), tpot_s = ValueOf(trial, "tpot_s", 1);
  if (!ttft_s || !tpot_s) return std::nullopt;
  const double seconds = *ttft_s + (output_len - 1) * *tpot_s;
  if (seconds <= 0) return std::nullopt;
  return -std::log(seconds);
}

std::map<RoundKey, double> ScoresOf(const std::vector<TrialRow>& trials, int candidate, int copy,
                                    Objective objective, int output_len) {
  struct Attempt {
    double score;
    bool suspect;
  };
  std::map<RoundKey, std::vector<Attempt>> attempts;
  for (const TrialRow& trial : trials) {
    if (trial.candidate != candidate || trial.copy != copy || !trial.ok) continue;
    if (const auto score = LogScore(trial, objective, output_len))
      attempts[{trial.phase, trial.round}].push_back({*score, !trial.suspect.empty()});
  }
  std::map<RoundKey, double> scores;
  for (const auto& [key, of_round] : attempts) {
    const Attempt &first = of_round.front(), &last = of_round.back();
    scores[key] = last.suspect ? (first.score + last.score) / 2 : last.score;
  }
  return scores;
}

std::vector<double> AnchorDifferences(const std::vector<TrialRow>& trials, Objective objective,
                                      int output_len) {
  std::vector<double> differences;
  const auto first = ScoresOf(trials, 0, 0, objective, output_len);
  for (const auto& [key, score] : ScoresOf(trials, 0, 1, objective, output_len))
    if (const auto other = first.find(key); other != first.end())
      differences.push_back(score - other->second);
  return differences;
}

}  // namespace pinion::harness
