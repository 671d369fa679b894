#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/probe/ceilings.h"
#include "harness/stats/estimate.h"
#include "harness/trial/bench.h"
#include "harness/trial/load.h"

namespace pinion::harness {

// The probe of an engine's own threads, ISA and type. Errors: too little free memory.
Result<std::unique_ptr<CeilingProbe>> StartCeilings(const Engine& engine);

// What a load computed over bandwidth, and over the peaks of its types.
double ReadSeconds(const StepCost& cost, const Ceilings& ceilings);
double ComputeSeconds(const StepCost& cost, const Ceilings& ceilings);
// The least time that this machine needs for what a load computed: its bytes over bandwidth, or its
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

// For prefill_tokens_per_s, decode_tokens_per_s and output_tokens_per_s, and where one request runs
// at a time also for ttft_s, tpot_s and e2el_s: with several, one waits for another as it should.
std::vector<MetricLimit> LimitsOf(const LoadResult& load, const BenchPlan& plan,
                                  const LeastTimes& least);

// Which part of what is possible `value` is, 1 at the limit: value over limit, or limit over value
// where less is better.
double FractionOfLimit(const std::string& metric, double value, double limit);

// The larger of each: what the machine could do around a round, since whatever disturbs a probe
// lowers it.
Ceilings Larger(const Ceilings& a, const Ceilings& b);

}  // namespace pinion::harness
