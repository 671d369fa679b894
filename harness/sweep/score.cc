#include "harness/sweep/score.h"

#include <cmath>
#include <set>

#include "engine/base/check.h"
#include "harness/stats/metrics.h"

namespace pinion::harness {

std::optional<double> ValueOf(const TrialRow& trial, const char* metric, LoadLevel level) {
  for (const MetricValue& sample : trial.samples)
    if (sample.metric == metric && sample.level == level) return sample.value;
  return std::nullopt;
}

namespace {

std::optional<double> LogOf(const std::optional<double>& value) {
  return value && *value > 0 ? std::optional(std::log(*value)) : std::nullopt;
}

std::optional<double> LatencyScore(const TrialRow& trial, const ScoreRule& rule) {
  const auto ttft_s = ValueOf(trial, "ttft_s", 1), tpot_s = ValueOf(trial, "tpot_s", 1);
  if (!ttft_s || !tpot_s) return std::nullopt;
  const auto log_seconds = LogOf(*ttft_s + (rule.output_len - 1) * *tpot_s);
  return log_seconds ? std::optional(-*log_seconds) : std::nullopt;
}

// More of the sample is better, or less of it, as its metric says.
std::optional<double> SampleScore(const TrialRow& trial, const char* metric, LoadLevel level) {
  const auto log_value = LogOf(ValueOf(trial, metric, level));
  if (!log_value) return std::nullopt;
  return FindMetric(metric)->more_is_better ? *log_value : -*log_value;
}

std::optional<double> CoresScore(const TrialRow& trial, const ScoreRule& rule) {
  const auto throughput = LogOf(ValueOf(trial, "output_tokens_per_s", 0));
  const int threads = trial.info.threads;
  if (!throughput || threads < 1) return std::nullopt;
  return *throughput + std::log1p(-rule.cores_within) * std::log2(threads);
}

}  // namespace

std::optional<double> LogScore(const TrialRow& trial, Objective objective, const ScoreRule& rule) {
  if (const char* metric = RowOf(objective).metric)
    return SampleScore(trial, metric, objective.level);
  if (objective == Objective::kLatency) return LatencyScore(trial, rule);
  if (objective == Objective::kCores) return CoresScore(trial, rule);
  CHECK(objective == Objective::kBalanced);
  const auto throughput = LogScore(trial, Objective::kThroughput, rule);
  const auto latency = LatencyScore(trial, rule);
  if (!throughput || !latency) return std::nullopt;
  return (*throughput + *latency) / 2;
}

std::optional<double> CostPerMillionTokens(const TrialRow& trial, const Definition& definition) {
  constexpr double kJoulesPerKwh = 3.6e6, kMillion = 1e6;
  double cost = 0;  // per token
  if (definition.price_per_hour) {
    const auto per_s = ValueOf(trial, "output_tokens_per_s", 0);
    if (!per_s || *per_s <= 0) return std::nullopt;
    cost += *definition.price_per_hour / (3600 * *per_s);
  }
  if (definition.price_per_kwh) {
    const auto joules = ValueOf(trial, "joules_per_token", 0);
    if (!joules) return std::nullopt;
    cost += *definition.price_per_kwh * *joules / kJoulesPerKwh;
  }
  return cost > 0 ? std::optional(cost * kMillion) : std::nullopt;
}

std::map<RoundKey, double> ScoresOf(const std::vector<TrialRow>& trials, int candidate, int copy,
                                    Objective objective, const ScoreRule& rule) {
  struct Attempt {
    double score;
    bool suspect;
  };
  std::map<RoundKey, std::vector<Attempt>> attempts;
  for (const TrialRow& trial : trials) {
    if (trial.candidate != candidate || trial.copy != copy || !trial.ok) continue;
    if (const auto score = LogScore(trial, objective, rule))
      attempts[{trial.phase, trial.round}].push_back({*score, !trial.suspect.empty()});
  }
  std::map<RoundKey, double> scores;
  for (const auto& [key, of_round] : attempts) {
    const Attempt &first = of_round.front(), &last = of_round.back();
    scores[key] = last.suspect ? (first.score + last.score) / 2 : last.score;
  }
  return scores;
}

std::vector<std::pair<int, double>> ScoresInOrder(const std::vector<TrialRow>& trials,
                                                  const RoundKey& round, Objective objective,
                                                  const ScoreRule& rule) {
  const auto is_of_round = [&](const TrialRow& trial) {
    return trial.ok && RoundKey(trial.phase, trial.round) == round;
  };
  std::set<std::pair<int, int>> undisturbed;  // candidate and copy
  for (const TrialRow& trial : trials)
    if (is_of_round(trial) && trial.suspect.empty())
      undisturbed.emplace(trial.candidate, trial.copy);
  std::vector<std::pair<int, double>> scores;
  for (const TrialRow& trial : trials) {
    if (!is_of_round(trial)) continue;
    if (!trial.suspect.empty() && undisturbed.count({trial.candidate, trial.copy})) continue;
    if (const auto score = LogScore(trial, objective, rule))
      scores.emplace_back(trial.candidate, *score);
  }
  return scores;
}

std::vector<double> BaselineDifferences(const std::vector<TrialRow>& trials, Objective objective,
                                        const ScoreRule& rule) {
  std::vector<double> differences;
  const auto first = ScoresOf(trials, 0, 0, objective, rule);
  for (const auto& [key, score] : ScoresOf(trials, 0, 1, objective, rule))
    if (const auto other = first.find(key); other != first.end())
      differences.push_back(score - other->second);
  return differences;
}

}  // namespace pinion::harness
