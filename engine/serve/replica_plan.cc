#include "engine/serve/replica_plan.h"

#include <numeric>
#include <utility>

#include "engine/base/log.h"
#include "engine/host/affinity.h"
#include "engine/run/replicas.h"
#include "engine/run/start.h"

namespace pinion {
namespace {

// Why replicas that could share their weights do not under --share-weights auto.
void LogUnshared(const EngineOptions& options, int replicas, const Plan& plan,
                 const std::vector<int>& copies) {
  if (options.share_weights != "auto" || copies == CopiesOfWeights(options, replicas, plan)) return;
  LogInfo(
      "each engine has its own copy of the weights, because this kernel gives shared memory small "
      "pages, which are slower to read; --share-weights on shares it anyway (see 'pinion doctor')");
}

}  // namespace

Result<std::vector<ReplicaPlan>> DivideAmongReplicas(const ServeOptions& options, const Plan& plan,
                                                     const Machine& machine, const Budget& budget) {
  const int replicas = options.data_parallel;
  if (const std::string why = WhyUnshared(options.engine, replicas, plan); !why.empty())
    LogWarning(why);
  if (replicas == 1) {
    PINION_ASSIGN(std::vector<int> cpus, ThreadAffinity());
    return std::vector<ReplicaPlan>{{options.engine, std::move(cpus), {}, 0}};
  }
  EngineOptions engine = options.engine;
  // A stand-in has no model; each has a copy of nothing.
  std::vector<int> copies(static_cast<size_t>(replicas));
  std::iota(copies.begin(), copies.end(), 0);
  if (!options.stand_in_rate) {
    // Each process checks its own needs, at a time when the others may not have taken theirs yet.
    PINION_ASSIGN(const PlannedModel model, PlanModel(engine));
    PINION_ASSIGN(MemoryOfReplicas memory,
                  DivideMemory(engine, replicas, model, machine, budget, plan, PageSizes::Here()));
    copies = std::move(memory.copies);
    engine.kv_cache_bytes = memory.kv_cache_bytes;
    LogUnshared(engine, replicas, plan, copies);
  }
  std::vector<ReplicaPlan> all;
  for (int i = 0; i < replicas; ++i) {
    const Plan own = PlanOfReplica(plan, replicas, i);
    all.push_back({OptionsOfReplica(engine, own), CpusOfReplica(own), EnvironmentOfReplica(own),
                   copies[static_cast<size_t>(i)]});
  }
  return all;
}

}  // namespace pinion
