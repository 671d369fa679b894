#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "harness/store/store.h"
#include "harness/sweep/score.h"

// Predictions for the protocol: which candidates to measure first, and which not at all.

namespace pinion::harness {

// Predicted log scores of one candidate, comparable with LogScore of its trials.
struct Forecast {
  double expected = 0;
  double at_best = 0;  // a bound that no trial can beat
};
// By candidate, for the objectives that ceilings can predict. Empty: there are no predictions.
using Forecasts = std::map<int, std::map<Objective, Forecast>>;

// Reads the result of MakeSweepPlan, by name. Excluded candidates have no forecast.
Forecasts ForecastsFrom(const Json& predictions, const std::vector<CandidateRow>& candidates,
                        const std::vector<Objective>& objectives, const ScoreRule& rule);

// `ids` with the most promising first, by their expected distance from the best of `ids` in
// their best objective. Candidates without a forecast come last, in their order.
std::vector<int> ByPromise(std::vector<int> ids, const Forecasts& forecasts,
                           const std::vector<Objective>& objectives);

// A score that a candidate provably reaches: the low end of the interval of the median of all
// its trials, distribution-free at 95 %.
struct Proven {
  int candidate = 0;
  double log_score = 0;
  size_t trials = 0;
};

// The best of them by objective; none if no candidate has enough trials. Empty
// if the median of any candidate beats its own at_best: then the ceilings were probed too low
// and prove nothing.
std::map<Objective, Proven> BestProven(const std::vector<TrialRow>& trials,
                                       const Forecasts& forecasts,
                                       const std::vector<Objective>& objectives,
                                       const ScoreRule& rule);

// Why a candidate need not be measured: in every objective its at_best is below a score that
// another provably reaches. nullopt: it may win one, or has no forecast.
std::optional<std::string> WhyHopeless(int candidate, const Forecasts& forecasts,
                                       const std::map<Objective, Proven>& proven,
                                       const std::vector<Objective>& objectives,
                                       const std::vector<CandidateRow>& candidates);

}  // namespace pinion::harness
