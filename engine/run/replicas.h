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
// tensor_parallel ranks, weights and --kv-cache-space of its own.

namespace pinion {

inline constexpr int kMaxReplicas = 256;

// One plan over all of them, as of replicas x tensor_parallel ranks: `auto` and `all` divide the
// budget as among ranks, lists are one per rank of every replica. The front ends of all replicas
// share what is held back for one. Errors (kUsage): fewer than 1 replica, or more ranks than CPUs.
Result<Plan> PlanReplicas(const EngineOptions& options, int replicas, const Machine& machine,
                          const Budget& budget);

// The plan of replica number `index`, from 0: its ranks, numbered from 0, and the front ends' CPUs.
Plan PlanOfReplica(const Plan& whole, int replicas, int index);

// What starts that replica so that it comes to this plan by itself: lists instead of what they were
// made from.
EngineOptions OptionsOfReplica(EngineOptions options, const Plan& plan);

// Where a replica's process may run: its ranks' and its front end's CPUs; empty under nobind.
std::vector<int> CpusOfReplica(const Plan& plan);

// What its environment must say: under nobind how many threads a rank has, or each replica would
// take the whole budget's.
std::vector<std::pair<std::string, std::string>> EnvironmentOfReplica(const Plan& plan);

// KV bytes per rank of each replica where nobody says how many: as one engine sizes its cache from
// free memory, once room for all replicas' weights and workspace is taken off. Opens the model's
// files.
Result<uint64_t> KvShareBytes(const EngineOptions& options, int replicas, const Budget& budget);

}  // namespace pinion
