#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/bench/bench.h"
#include "harness/bench/load.h"
#include "harness/probe/ceilings.h"

namespace pinion::harness {

// The probe of an engine's own threads, ISA and type. Errors: too little free memory.
Result<std::unique_ptr<CeilingProbe>> StartCeilings(const Engine& engine);

// The time for a load's bytes at the bandwidth, and for its operations at the peaks of their types.
double ReadSeconds(const StepCost& cost, const Ceilings& ceilings);
double ComputeSeconds(const StepCost& cost, const Ceilings& ceilings);
// The least time that this machine needs for a load's work: its bytes over bandwidth, or its
// operations over peak, whichever is longer.
double RoofSeconds(const StepCost& cost, const Ceilings& ceilings);

// The best value of a metric that the ceilings allow for this load, in the metric's unit.
struct MetricLimit {
  std::string metric;
  double value = 0;
};

// The least time that the machine needed for the steps of a load, by kind.
struct LeastTimes {
  double prefill_s = 0, decode_s = 0;
};

// For prefill_tokens_per_s, decode_tokens_per_s and output_tokens_per_s, and if one request runs
// at a time also for ttft_s, tpot_s and e2el_s: with several, requests wait for each other by
// design.
std::vector<MetricLimit> LimitsOf(const LoadResult& load, const BenchPlan& plan,
                                  const LeastTimes& least);

// The fraction of the limit that `value` reaches: value over limit, or limit over value
// if less is better.
double FractionOfLimit(const std::string& metric, double value, double limit);

// The larger of each ceiling: the best estimate around a round, since a disturbance can only lower
// a probe.
Ceilings Larger(const Ceilings& a, const Ceilings& b);

}  // namespace pinion::harness
