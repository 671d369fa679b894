#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "engine/host/binding.h"
#include "engine/host/budget.h"
#include "engine/host/machine.h"
#include "engine/run/options.h"

// Several engine processes of the same options on one machine (data parallel). Each has
// tensor_parallel ranks and --kv-cache-space of its own, and those on the same NUMA nodes may share
// their weights.

namespace pinion {

struct PlannedModel;

inline constexpr int kMaxReplicas = 256;

// One plan for all replicas, as for replicas x tensor_parallel ranks: `auto` and `all` divide the
// budget among these ranks; explicit lists need one per rank of every replica. All front ends share
// the CPUs reserved for one. Errors (kUsage): fewer than 1 replica, or more ranks than CPUs.
Result<Plan> PlanReplicas(const EngineOptions& options, int replicas, const Machine& machine,
                          const Budget& budget);

// Whether so many of the replicas can compute the prompts of the others (kUsage).
Status CheckPrefillReplicas(const EngineOptions& options, int replicas, int prefill);

// The plan of replica `index`: its ranks, renumbered from 0, and the CPUs of the front ends.
Plan PlanOfReplica(const Plan& whole, int replicas, int index);

// Options that make the replica's own process arrive at this plan: explicit CPU lists replace the
// binding mode that produced them.
EngineOptions OptionsOfReplica(EngineOptions options, const Plan& plan);

// The CPUs a replica's process may run on: its ranks' and its front end's; empty under nobind.
std::vector<int> CpusOfReplica(const Plan& plan);

// Environment variables for the replica: under nobind, its number of threads per rank; without it,
// each replica would take the whole budget.
std::vector<std::pair<std::string, std::string>> EnvironmentOfReplica(const Plan& plan);

// The copies of the packed weights that replicas with this plan have if they share them: by
// replica, the number of its copy; copies are numbered as the replicas come to them. A copy is for
// replicas whose ranks are on the same nodes, each on one, so that whoever packs places the pages
// where all the others read. With --share-weights off, or pages that lie in turn on all nodes, each
// has a copy of its own.
std::vector<int> CopiesOfWeights(const EngineOptions& options, int replicas, const Plan& plan);

// Whether they share them: not if every copy would have one replica, or --share-weights is off;
// under `auto`, if that costs no speed (shared pages are as large as private ones), or if memory
// does not hold a copy for each.
struct PageSizes {
  bool shared_are_huge = true, private_are_huge = true;
  static PageSizes Here();
};
Result<bool> SharesWeights(const EngineOptions& options, int replicas, const PlannedModel& model,
                           const Machine& machine, const Budget& budget, const Plan& plan,
                           const PageSizes& pages);

// Why --share-weights on shares nothing among replicas with this plan, in a sentence for the log;
// empty if some share a copy, or it is not `on`.
std::string WhyUnshared(const EngineOptions& options, int replicas, const Plan& plan);

// Whether so many replicas fit into memory together, by the engine's own check (CheckCapacity), if
// they share their weights as far as --share-weights allows. `plan`: of all of them; `model`:
// PlanModel(options).
Status CheckReplicasFit(const EngineOptions& options, int replicas, const PlannedModel& model,
                        const Machine& machine, const Budget& budget, const Plan& plan);

// How the memory is divided among several replicas.
struct MemoryOfReplicas {
  std::vector<int> copies;      // CopiesOfWeights, or a copy for each, if they do not share
  uint64_t kv_cache_bytes = 0;  // per rank of each: as asked for, or KvShareBytes
};
// Errors: memory that they do not fit into (kExhausted). `plan`: of all of them; `model`:
// PlanModel(options).
Result<MemoryOfReplicas> DivideMemory(const EngineOptions& options, int replicas,
                                      const PlannedModel& model, const Machine& machine,
                                      const Budget& budget, const Plan& plan,
                                      const PageSizes& pages);

// KV bytes per rank of each replica if --kv-cache-space is not given: sized as one engine sizes its
// cache, from the memory left once all replicas have workspace, and weights in so many copies.
// Opens the model's files.
Result<uint64_t> KvShareBytes(const EngineOptions& options, int replicas, int copies,
                              const Budget& budget);

}  // namespace pinion
