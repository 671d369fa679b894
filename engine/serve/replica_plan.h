#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "engine/host/binding.h"
#include "engine/host/budget.h"
#include "engine/host/machine.h"
#include "engine/serve/options.h"

namespace pinion {

// One of the engine processes behind a front end.
struct ReplicaPlan {
  EngineOptions options;
  std::vector<int> cpus;  // that the process may use, also when it is started again
  std::vector<std::pair<std::string, std::string>> environment;
  int copy = 0;  // of the weights; equal for those that share one
};

// The processes of a server with this plan (PlanReplicas): one with the options as they are, or
// options.data_parallel with explicit CPU lists and equal shares of the memory. Errors: the model's
// files, and memory that several do not fit into (kExhausted).
Result<std::vector<ReplicaPlan>> DivideAmongReplicas(const ServeOptions& options, const Plan& plan,
                                                     const Machine& machine, const Budget& budget);

}  // namespace pinion
