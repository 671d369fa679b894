#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/host/binding.h"
#include "engine/run/options.h"
#include "harness/topo/model_fit.h"

namespace pinion::harness {

// The request to `pinion topo`.
struct TopologyOptions {
  std::string machine;       // "" for this one, a synthetic description or FILE.xml
  std::string allowed_cpus;  // "" for those that the operating system allows
  std::optional<double> cpu_quota;
  EngineOptions engine;  // how ranks are bound; its model may be empty
  int replicas = 1;      // engines behind one front end, each with ranks of its own
};

// A rank's place among those of all engines.
struct RankPlace {
  int engine = 0, rank = 0;  // of the engine
  int stage = 0;             // of layers, 0 being the first
};

// A machine, its usable CPUs and memory, and the ranks' placement.
struct Topology {
  Machine machine;
  Budget budget;
  std::vector<std::string> isa;   // the paths that auto chooses from, weakest first; of this CPU
  std::string amx_refusal;        // why amx is not among them though this CPU has it; else empty
  Plan plan;                      // of all engines' ranks
  std::vector<RankPlace> places;  // of the plan's ranks
  int replicas = 1, stages = 1;
  std::optional<ModelFit> model;  // if one was named
};

// Errors are those of the machine's description, the budget, the binding and the model.
Result<Topology> Examine(const TopologyOptions& options);

// {"budget":{...},"nodes":[{"id","cpus","memory_bytes"}],"cpu_kinds":[{"name","cpus"}],"isa":[],
//  "amx_refusal":null,"plan":{...},"placement":[{"engine","rank","stage","threads","nodes","cpus"}],
//  "model":null or {...}}; cpu_kinds: from the slowest up, none if all cores are alike; placement:
// the plan's ranks
Json ToJson(const Topology& topology);

}  // namespace pinion::harness
