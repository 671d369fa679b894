#include "harness/sweep/forecast.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/json_lists.h"
#include "engine/base/strings.h"
#include "harness/stats/estimate.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

// A trial that measured exactly these figures, so that forecasts and trials are scored by one rule.
TrialRow AsTrial(const Json& figures, const Json* threads) {
  TrialRow trial;
  if (threads && threads->is_int()) trial.info.threads = static_cast<int>(threads->integer());
  const auto take = [&](const char* metric, LoadLevel level) {
    const Json* value = figures.Find(metric);
    if (value && value->is_number()) trial.samples.push_back({metric, level, value->number()});
  };
  take("output_tokens_per_s", 0);
  take("ttft_s", 1);
  take("tpot_s", 1);
  return trial;
}

std::map<Objective, Forecast> ForecastOf(const Json& predicted, const Json* threads,
                                         const std::vector<Objective>& objectives,
                                         const ScoreRule& rule) {
  std::map<Objective, Forecast> forecast;
  const Json* at_best = predicted.Find("at_best");
  if (!at_best) return forecast;
  const TrialRow expected = AsTrial(predicted, threads), best = AsTrial(*at_best, threads);
  for (const Objective objective : objectives) {
    const auto likely = LogScore(expected, objective, rule);
    const auto most = LogScore(best, objective, rule);
    if (likely && most) forecast[objective] = {*likely, *most};
  }
  return forecast;
}

// Both of the baseline's trials in a round count.
std::map<int, std::vector<double>> ScoresByCandidate(const std::vector<TrialRow>& trials,
                                                     Objective objective, const ScoreRule& rule) {
  std::map<int, std::vector<double>> scores;
  for (const TrialRow& trial : trials)
    if (const auto score = trial.ok ? LogScore(trial, objective, rule) : std::nullopt)
      scores[trial.candidate].push_back(*score);
  return scores;
}

const Forecast* Find(const Forecasts& forecasts, int candidate, Objective objective) {
  const auto of_candidate = forecasts.find(candidate);
  if (of_candidate == forecasts.end()) return nullptr;
  const auto found = of_candidate->second.find(objective);
  return found == of_candidate->second.end() ? nullptr : &found->second;
}

}  // namespace

Forecasts ForecastsFrom(const Json& predictions, const std::vector<CandidateRow>& candidates,
                        const std::vector<Objective>& objectives, const ScoreRule& rule) {
  Forecasts forecasts;
  for (const Json& one : ItemsOf(predictions, "candidates")) {
    const Json *name = one.Find("name"), *prediction = one.Find("prediction");
    if (!name || !prediction) continue;
    for (const CandidateRow& row : candidates)
      if (*name == Json(row.label))
        forecasts[row.id] = ForecastOf(*prediction, one.Find("threads"), objectives, rule);
  }
  return forecasts;
}

std::vector<int> ByPromise(std::vector<int> ids, const Forecasts& forecasts,
                           const std::vector<Objective>& objectives) {
  constexpr double kUnknown = std::numeric_limits<double>::infinity();
  std::map<int, double> behind;
  for (const int id : ids) behind[id] = kUnknown;
  for (const Objective objective : objectives) {
    double best = -kUnknown;
    for (const int id : ids)
      if (const Forecast* one = Find(forecasts, id, objective))
        best = std::max(best, one->expected);
    for (const int id : ids)
      if (const Forecast* one = Find(forecasts, id, objective))
        behind[id] = std::min(behind[id], best - one->expected);
  }
  std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return behind[a] < behind[b]; });
  return ids;
}

std::map<Objective, Proven> BestProven(const std::vector<TrialRow>& trials,
                                       const Forecasts& forecasts,
                                       const std::vector<Objective>& objectives,
                                       const ScoreRule& rule) {
  std::map<Objective, Proven> best;
  for (const Objective objective : objectives) {
    for (const auto& [candidate, scores] : ScoresByCandidate(trials, objective, rule)) {
      const Forecast* forecast = Find(forecasts, candidate, objective);
      if (forecast && Median(scores) > forecast->at_best) return {};
      const auto interval = MedianInterval(scores);
      if (!interval) continue;
      const auto known = best.find(objective);
      if (known == best.end() || interval->low > known->second.log_score)
        best[objective] = {candidate, interval->low, scores.size()};
    }
  }
  return best;
}

std::optional<std::string> WhyHopeless(int candidate, const Forecasts& forecasts,
                                       const std::map<Objective, Proven>& proven,
                                       const std::vector<Objective>& objectives,
                                       const std::vector<CandidateRow>& candidates) {
  std::vector<std::string> reasons;
  for (const Objective objective : objectives) {
    const Forecast* forecast = Find(forecasts, candidate, objective);
    const auto best = proven.find(objective);
    if (!forecast || best == proven.end() || forecast->at_best >= best->second.log_score)
      return std::nullopt;
    const auto row = std::find_if(candidates.begin(), candidates.end(), [&](const auto& one) {
      return one.id == best->second.candidate;
    });
    const double share = std::exp(forecast->at_best - best->second.log_score);
    reasons.push_back(StrCat(Name(objective), " at best ", Printf("%.0f %%", 100 * share),
                             " of the least that ", row->label, " reached in ", best->second.trials,
                             " trials"));
  }
  return StrCat("not measured: by exact bytes and operations and the probe's raised ceilings, ",
                Join(reasons, "; "));
}

}  // namespace pinion::harness
