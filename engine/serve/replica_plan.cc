#include "engine/serve/replica_plan.h"

#include <algorithm>
#include <numeric>

#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/host/affinity.h"
#include "engine/run/replicas.h"
#include "engine/run/start.h"

namespace pinion {
namespace {

// Each has a copy of its own.
std::vector<int> OwnCopies(int replicas) {
  std::vector<int> copies(static_cast<size_t>(replicas));
  std::iota(copies.begin(), copies.end(), 0);
  return copies;
}

int CountOf(const std::vector<int>& copies) {
  return *std::max_element(copies.begin(), copies.end()) + 1;
}

// Why replicas that could share their weights do not under --share-weights auto.
void LogUnshared(const EngineOptions& options, int replicas, const Plan& plan) {
  if (options.share_weights != "auto" ||
      CountOf(CopiesOfWeights(options, replicas, plan)) == replicas)
    return;
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
  std::vector<int> copies = OwnCopies(replicas);
  if (!options.stand_in_rate) {
    // Each process checks its own needs, at a time when the others may not have taken theirs yet.
    PINION_ASSIGN(const PlannedModel model, PlanModel(engine));
    if (auto fits = CheckReplicasFit(engine, replicas, model, machine, budget, plan); !fits)
      return Unexpected(std::move(fits).error().In(StrCat("--data-parallel-size ", replicas)));
    PINION_ASSIGN(const bool shares,
                  SharesWeights(engine, replicas, model, machine, budget, plan, PageSizes::Here()));
    if (shares)
      copies = CopiesOfWeights(engine, replicas, plan);
    else
      LogUnshared(engine, replicas, plan);
    if (!engine.kv_cache_bytes) {
      PINION_ASSIGN(engine.kv_cache_bytes, KvShareBytes(engine, replicas, CountOf(copies), budget));
    }
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
