#include "engine/serve/replica_plan.h"

#include "engine/base/strings.h"
#include "engine/host/affinity.h"
#include "engine/run/replicas.h"
#include "engine/run/start.h"

namespace pinion {
Result<std::vector<ReplicaPlan>> DivideAmongReplicas(const ServeOptions& options, const Plan& plan,
                                                     const Machine& machine, const Budget& budget) {
  const int replicas = options.data_parallel;
  if (replicas == 1) {
    PINION_ASSIGN(std::vector<int> cpus, ThreadAffinity());
    return std::vector<ReplicaPlan>{{options.engine, std::move(cpus), {}}};
  }
  EngineOptions engine = options.engine;
  if (!options.stand_in_rate) {
    // Each process checks its own needs, at a time when the others may not have taken theirs yet.
    PINION_ASSIGN(const PlannedModel model, PlanModel(engine));
    if (auto fits = CheckReplicasFit(engine, replicas, model, machine, budget, plan); !fits)
      return Unexpected(std::move(fits).error().In(StrCat("--data-parallel-size ", replicas)));
    if (!engine.kv_cache_bytes) {
      PINION_ASSIGN(engine.kv_cache_bytes, KvShareBytes(engine, replicas, budget));
    }
  }
  std::vector<ReplicaPlan> all;
  for (int i = 0; i < replicas; ++i) {
    const Plan own = PlanOfReplica(plan, replicas, i);
    all.push_back({OptionsOfReplica(engine, own), CpusOfReplica(own), EnvironmentOfReplica(own)});
  }
  return all;
}

}  // namespace pinion
