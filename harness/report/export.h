#pragma once

#include <optional>
#include <string>

#include "engine/base/json.h"
#include "harness/results/results.h"

// The tables of a sweep, for programs.

namespace pinion::harness {

// results.json: everything in `results`, every sample, and the launch commands of `folder`.
Json ResultsJson(const Results& results, const std::string& folder);

// results.csv: one row per candidate, metric and concurrency with median, interval and settings;
// one row without a metric for a candidate that was never measured. RFC 4180.
std::string ResultsCsv(const Results& results);

// {"n","median","mad","interval"}; median and mad are null without samples, the interval with too
// few rounds for one.
Json EstimateJson(const Estimate& estimate);
// {"low","high","coverage"} or null.
Json IntervalJson(const std::optional<Interval>& interval);

}  // namespace pinion::harness
