#include "engine/run/server_info.h"

#include "engine/host/huge_pages.h"
#include "engine/run/placement.h"
#include "engine/run/spread_step.h"
#include "engine/run/step_clock.h"

namespace pinion {
namespace {

Json StepTimesJson(const MeasuredStepTimes& times, const SchedulerStats& stats) {
  Json out = times.ToJson();
  out.Set("bound_seconds", stats.bound_s);
  out.Set("steps_over_bound", stats.steps_over_bound);
  return out;
}

// Which of the server's copies these weights are, how many engines read it, and whether this one
// has packed it; null if they are its own.
Json SharedWeightsJson(const StartedModel& model) {
  const WeightCopy& copy = model.options.weight_copy;
  if (!copy.is_shared()) return {};
  return Json::Object{
      {"copy", copy.number}, {"engines", copy.engines}, {"packed_here", !model.mapped_weights}};
}

Json KvCacheJson(const EngineInfo& info) {
  Json kv = Json::MakeObject();
  kv.Set("dtype", kernels::Name(info.kv_dtype));
  kv.Set("bytes", info.kv_bytes);
  kv.Set("block_tokens", static_cast<uint64_t>(info.block_tokens));
  kv.Set("blocks", static_cast<uint64_t>(info.blocks));
  kv.Set("tokens", static_cast<uint64_t>(info.kv_tokens));
  kv.Set("state_bytes", info.state_bytes);
  kv.Set("kept_states", static_cast<uint64_t>(info.kept_states));
  return kv;
}

}  // namespace

Json ServerInfoOf(const StartedModel& model, const EngineStats& stats,
                  const SchedulerStats& scheduled) {
  const EngineInfo& info = model.info;
  Json out = Json::MakeObject();
  out.Set("options", ToJson(model.options));
  out.Set("task", Name(info.task));
  out.Set("plan", ToJson(info.plan));
  out.Set("isa", info.isa);
  out.Set("gemm", info.gemm);
  out.Set("dtype", info.dtype);
  out.Set("threads", info.threads);
  out.Set("processes", static_cast<uint64_t>(info.processes));
  if (info.link) out.Set("link", LinkJson(*info.link, stats, model.options));
  out.Set("max_model_len", static_cast<uint64_t>(info.max_model_len));
  out.Set("load_s", info.load_s);
  out.Set("weight_bytes", info.weight_bytes);
  out.Set("shared_weights", SharedWeightsJson(model));
  out.Set("kv_cache", KvCacheJson(info));
  out.Set("placement", PlacementOf(model));
  out.Set("memory_policy", MemoryPolicyOf(model));
  if (model.step_times) out.Set("step_times", StepTimesJson(*model.step_times, scheduled));
  out.Set("allocator", info.allocator);
  out.Set("openmp", info.openmp);
  out.Set("huge_pages", HugePageChoice());
  out.Set("stages", info.stages);
  return out;
}

}  // namespace pinion
