#include "engine/base/strings.h"
#include "harness/probe/probe.h"
#include "kernels/offered_isas.h"

namespace pinion::harness {
namespace {

// An array with one object per item, which `fill` writes.
template <typename Item, typename Fill>
Json ArrayOf(const std::vector<Item>& items, Fill fill) {
  Json array = Json::MakeArray();
  for (const Item& item : items) {
    Json object = Json::MakeObject();
    fill(item, object);
    array.Append(std::move(object));
  }
  return array;
}

Json OrNull(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

}  // namespace

Json ToJson(const ProbeResult& result) {
  Json object = Json::MakeObject();
  object.Set("machine", MachineFingerprint(result.machine));
  object.Set("threads", result.plan.total_threads());
  object.Set("cpus", Json(result.plan.ranks[0].cpus));
  object.Set("elapsed_s", result.elapsed_s);
  object.Set("memory_read", ArrayOf(result.reads, [](const ReadRate& rate, Json& item) {
               item.Set("threads", static_cast<int64_t>(rate.cpus.size()));
               item.Set("cpus", Json(rate.cpus));
               item.Set("bytes_per_s", rate.bytes_per_s);
             }));
  object.Set("nodes", ArrayOf(result.nodes, [](const NodeRate& rate, Json& item) {
               item.Set("cpu_node", rate.cpu_node);
               item.Set("memory_node", rate.memory_node);
               item.Set("threads", rate.threads);
               item.Set("bytes_per_s", rate.bytes_per_s);
             }));
  object.Set("caches", ArrayOf(result.caches, [](const CacheRate& rate, Json& item) {
               item.Set("level", rate.level);
               item.Set("cache_bytes", rate.cache_bytes);
               item.Set("read_bytes", rate.read_bytes);
               item.Set("threads", rate.threads);
               item.Set("bytes_per_s", rate.bytes_per_s);
             }));
  object.Set("compute", ArrayOf(result.compute, [](const ComputeRate& rate, Json& item) {
               item.Set("isa", kernels::Name(rate.isa));
               item.Set("dtype", kernels::Name(rate.dtype));
               item.Set("threads", rate.threads);
               item.Set("flops_per_s", rate.flops_per_s);
             }));
  object.Set("int8", ArrayOf(result.int8, [](const Int8Rate& rate, Json& item) {
               item.Set("isa", kernels::Name(rate.isa));
               item.Set("threads", rate.threads);
               item.Set("operations_per_s", rate.operations_per_s);
             }));
  object.Set("exp", ArrayOf(result.exps, [](const ExpRate& rate, Json& item) {
               item.Set("isa", kernels::Name(rate.isa));
               item.Set("threads", rate.threads);
               item.Set("exps_per_s", rate.per_s);
             }));
  object.Set("instructions",
             ArrayOf(result.instructions, [](const InstructionRate& rate, Json& item) {
               item.Set("type", rate.type);
               item.Set("name", rate.name);
               item.Set("threads", rate.threads);
               item.Set("operations_per_s", rate.operations_per_s);
             }));
  object.Set("latencies", ArrayOf(result.latencies, [](const Latency& latency, Json& item) {
               item.Set("level", latency.level > 0 ? StrCat("L", latency.level) : "memory");
               item.Set("bytes", latency.bytes);
               item.Set("ns", latency.ns);
             }));
  object.Set("gemm", ArrayOf(result.gemm, [](const GemmChoice& choice, Json& item) {
               item.Set("isa", kernels::Name(kernels::OfferedIsas().isas.back()));
               item.Set("dtype", kernels::Name(choice.dtype));
               item.Set("rules", choice.rules);
             }));
  object.Set("barrier_ns", OrNull(result.barrier_ns));
  object.Set("fork_join_ns", OrNull(result.fork_join_ns));
  object.Set("wake_ns", OrNull(result.wake_ns));
  object.Set("distances", ArrayOf(result.distances, [](const Distance& distance, Json& item) {
               item.Set("cpus", Json(std::vector<int>{distance.cpu, distance.other_cpu}));
               item.Set("one_way_ns", distance.one_way_ns);
             }));
  object.Set("missing", ArrayOf(result.missing, [](const MissingFigure& missing, Json& item) {
               item.Set("what", missing.what);
               item.Set("why", missing.why);
             }));
  return object;
}

}  // namespace pinion::harness
