#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/host/budget.h"
#include "engine/host/machine.h"

namespace pinion {

struct BindingRequest {
  std::string threads_bind = "auto";  // auto | all | nobind | lists joined by '|'
  int ranks = 1;                      // tensor-parallel degree
  std::optional<int> reserved_cpus;   // unset: 0, or for a front end the design's default of 1
  bool has_frontend = false;          // serve and launch: a process of its own wants a core
  std::optional<int> nobind_threads;  // OMP_NUM_THREADS
  bool smt = false;  // under auto: every allowed hardware thread of a core, not its first alone
};

struct RankPlan {
  int rank = 0;
  std::vector<int> cpus;   // thread i of the rank runs on cpus[i]; empty under nobind
  std::vector<int> nodes;  // NUMA nodes of those CPUs, ascending
  int threads = 1;         // cpus.size(), or the rank's share under nobind
};

// Who computes where. Printed at start and served at /server_info.
struct Plan {
  std::vector<RankPlan> ranks;
  std::vector<int> frontend_cpus;     // empty: the front end shares the ranks' CPUs
  std::vector<std::string> reasons;   // how the plan came about, one line each
  std::vector<std::string> warnings;  // what a person may want to change
  int total_threads() const;
};

// Applies the design's binding grammar (shared rules in README of engine/host). Errors name the
// value, what is allowed and the way out; ErrorCode::kUsage.
Result<Plan> MakePlan(const Machine& machine, const Budget& budget, const BindingRequest& request);

// OMP_NUM_THREADS, for BindingRequest::nobind_threads: its first number (OpenMP allows one per
// nesting level), nullopt where unset or empty. Anything else is kUsage.
Result<std::optional<int>> OmpNumThreads();

// {"ranks":[{"rank","cpus","nodes","threads"}],"frontend_cpus":[],"warnings":[],"reasons":[]}
Json ToJson(const Plan& plan);

}  // namespace pinion
