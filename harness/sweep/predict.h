#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/model/spec.h"
#include "harness/space/expand.h"
#include "harness/sweep/probed_machine.h"

// What a configuration can do at most, from exact bytes and operations and the ceilings that
// `pinion probe` measured. Before anything is run, and for machines that are not here.

namespace pinion::harness {

struct Figures {
  double output_tokens_per_s = 0;  // of the offline batch
  double ttft_s = 0, tpot_s = 0;   // one client
};

// What the ceilings allow, not what will be reached: barriers, activations and the front end are
// left out. Experts' weights count as expected for tokens whose routers take all alike.
struct Prediction : Figures {
  bool decode_bound_by_bytes = false;
  // The bound that no run can beat: ceilings raised by ProbedMachine::kMargin, caches that keep
  // what they can from step to step, tokens that all choose the same experts.
  Figures at_best;
};

// Replicas share the bandwidth and the batch; each reads its own weights at each of its steps.
// t = sum over prefill and decode of max(bytes / bandwidth, operations / peak), of the workload's
// offline batch and of one request alone. The plan of `point` must be there; `model` as its options
// run it (SpecFor). `cache_bytes`: of all caches of the machine.
Result<Prediction> Predict(const Point& point, const DecoderSpec& model, const Workload& workload,
                           const ProbedMachine& machine, uint64_t cache_bytes);

// Of all last-level domains, and 2 MiB a core before them.
uint64_t CacheBytes(const Machine& machine);

// {"output_tokens_per_s","ttft_s","tpot_s","decode_bound_by",
//  "at_best":{"output_tokens_per_s","ttft_s","tpot_s"}}
Json ToJson(const Prediction& prediction);

// A plan for a machine that is not here: every candidate with what it may reach there, best first.
// {"prediction":true,"machine":{},"probe_machine":{},"model","candidates":[{"label","settings",
//  "options","threads","predicted":{}|null,"infeasible"}]}
Result<Json> PredictAll(const std::vector<Point>& points, const Host& host,
                        const std::string& model_name, const Workload& workload, const Json& probe);
// The same for a person.
std::string RenderPlan(const Json& plan);

}  // namespace pinion::harness
