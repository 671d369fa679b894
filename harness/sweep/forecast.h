#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "harness/space/definition.h"
#include "harness/store/store.h"
#include "harness/sweep/score.h"

// Predictions as the protocol uses them: whom to measure first, and whom not at all.

namespace pinion::harness {

// Log scores of one candidate, as LogScore gives them of its trials.
struct Forecast {
  double expected = 0;
  double at_best = 0;  // that no run can beat
};
// By candidate, of the objectives that ceilings say something about. Empty: nothing was predicted.
using Forecasts = std::map<int, std::map<Objective, Forecast>>;

// From what PredictAll gave, by label. Infeasible candidates have none.
Forecasts ForecastsFrom(const Json& predictions, const std::vector<CandidateRow>& candidates,
                        const ScoreRule& rule);

// `ids` with the most promising first: by how far behind the best of `ids` they are expected, in
// the objective that is kindest to them. Without a forecast: last, in their order.
std::vector<int> ByPromise(std::vector<int> ids, const Forecasts& forecasts,
                           const std::vector<Objective>& objectives);

// What somebody was measured to reach at least: the low end of the interval of the median of all
// its trials, distribution-free at 95 %.
struct Proven {
  int candidate = 0;
  double log_score = 0;
  size_t trials = 0;
};

// The best of them by objective; none where nobody has trials enough. Empty, whoever was measured,
// where the median of any candidate beats its own at_best: the ceilings were probed too low then,
// and prove nothing.
std::map<Objective, Proven> BestProven(const std::vector<TrialRow>& trials,
                                       const Forecasts& forecasts,
                                       const std::vector<Objective>& objectives,
                                       const ScoreRule& rule);

// Why a candidate need not be measured: in every objective its at_best is below what another was
// measured to reach. nullopt: it may win one, or nothing is known of it.
std::optional<std::string> WhyHopeless(int candidate, const Forecasts& forecasts,
                                       const std::map<Objective, Proven>& proven,
                                       const std::vector<Objective>& objectives,
                                       const std::vector<CandidateRow>& candidates);

}  // namespace pinion::harness
