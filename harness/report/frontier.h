#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "harness/results/results.h"
#include "harness/stats/pareto.h"

namespace pinion::harness {

// A configuration under one of the loads: the time of its requests and its throughput.
struct FrontPoint {
  const Candidate* candidate;
  LoadLevel level;
  const Series *latency, *throughput;
  Front front = Front::kOn;
  const FrontPoint* beaten_by = nullptr;  // unless it is on the front; points into the same list
};

// All that were measured, in order of the candidates.
std::vector<FrontPoint> FrontOf(const Results& results);

// "on the Pareto front with 8 clients, possibly with 1 client"; empty if it is not.
std::string FrontText(const std::vector<FrontPoint>& points, const Candidate& candidate);

// [{"candidate","label","concurrency","front","beaten_by":{"candidate","label","concurrency"}}]
Json FrontJson(const std::vector<FrontPoint>& points);

}  // namespace pinion::harness
