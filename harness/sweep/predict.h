#pragma once

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/run/start.h"
#include "harness/space/expand.h"
#include "harness/sweep/machine_ceilings.h"

// Limits of a configuration's performance, from exact bytes and operations and the machine's
// ceilings: before anything is run, and for other machines.

namespace pinion::harness {

struct Figures {
  double output_tokens_per_s = 0;  // of the offline batch
  double ttft_s = 0, tpot_s = 0;   // one client
};

// The limit by the ceilings, which no trial will quite reach: barriers, activations and the front
// end are left out. Experts' weights count as expected if tokens choose all experts equally often.
struct Prediction : Figures {
  bool decode_bound_by_bytes = false;
  // The bound that no trial can beat: ceilings raised by MachineCeilings::kMargin, caches that keep
  // as much as possible from step to step, tokens that all choose the same experts.
  Figures at_best;
};

// Replicas share the bandwidth and the batch; each reads its own weights at each of its steps.
// t = sum over prefill and decode of max(bytes / bandwidth, operations / peak), of the load
// as an offline batch and of one request alone. A stated --kv-cache-space limits the sequences of a
// step. `point` must have its plan on `machine`; `model`: under its options (PlanModel).
// `cache_bytes`: of all caches of the machine.
Result<Prediction> Predict(const Point& point, const PlannedModel& model, const LoadPlan& load,
                           const MachineCeilings& ceilings, const Machine& machine,
                           uint64_t cache_bytes);

// Bytes of all last-level caches, and 2 MiB per core for the levels before them.
uint64_t CacheBytes(const Machine& machine);

// {"output_tokens_per_s","ttft_s","tpot_s","decode_bound_by",
//  "at_best":{"output_tokens_per_s","ttft_s","tpot_s"}}
Json ToJson(const Prediction& prediction);

}  // namespace pinion::harness
