#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/host/binding.h"

namespace pinion::harness {

// The request to `pinion topo`.
struct TopologyOptions {
  std::string machine;       // "" for this one, a synthetic description or FILE.xml
  std::string allowed_cpus;  // "" for those that the operating system allows
  std::optional<double> cpu_quota;
  std::string threads_bind = "auto";
  int tensor_parallel = 1;
  std::optional<int> reserved_cpus;
  bool smt = false;           // all hardware threads of a core, under auto
  bool has_frontend = false;  // plan as for serve and launch
};

// A machine, its usable CPUs and memory, and the ranks' placement.
struct Topology {
  Machine machine;
  Budget budget;
  std::vector<std::string> isa;  // the paths that auto chooses from, weakest first; of this CPU
  std::string amx_refusal;       // why amx is not among them though this CPU has it; else empty
  Plan plan;
};

// Errors are those of the machine's description, the budget and the binding.
Result<Topology> Examine(const TopologyOptions& options);

// {"budget":{...},"nodes":[{"id","cpus","memory_bytes"}],"isa":[],"amx_refusal":null,
//  "plan":{...}}
Json ToJson(const Topology& topology);

}  // namespace pinion::harness
