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
  std::optional<int> reserved_cpus;   // unset: 0, or 1 if there is a front end and enough cores
  bool has_frontend = false;          // serve and launch run a front-end process, too
  std::optional<int> nobind_threads;  // OMP_NUM_THREADS
  bool smt = false;  // under auto: use every allowed hardware thread of a core, not only the first
};

struct RankPlan {
  int rank = 0;
  std::vector<int> cpus;   // thread i of the rank runs on cpus[i]; empty under nobind
  std::vector<int> nodes;  // NUMA nodes of those CPUs, ascending
  int threads = 1;         // cpus.size(), or the rank's share under nobind
  // How many threads meet before they meet the others, in their order: GroupsOfCpus(cpus). Empty:
  // all meet at once.
  std::vector<int> groups = {};
};

// The CPUs of every rank and of the front end. Printed at start and served at /server_info.
struct Plan {
  std::vector<RankPlan> ranks;
  std::vector<int> frontend_cpus;     // empty: the front end shares the ranks' CPUs
  std::vector<std::string> reasons;   // why the plan is as it is, one line each
  std::vector<std::string> warnings;  // problems that a user may want to fix
  int total_threads() const;
};

// Makes the plan for `request` (rules: README of engine/host). Errors (kUsage) name the value, the
// allowed ones and a fix.
Result<Plan> MakePlan(const Machine& machine, const Budget& budget, const BindingRequest& request);

// OMP_NUM_THREADS, for BindingRequest::nobind_threads: its first number (OpenMP allows one per
// nesting level), nullopt if unset or empty. Anything else is kUsage.
Result<std::optional<int>> OmpNumThreads();

// {"ranks":[{"rank","cpus","nodes","threads"}],"frontend_cpus":[],"warnings":[],"reasons":[]}
Json ToJson(const Plan& plan);

}  // namespace pinion
