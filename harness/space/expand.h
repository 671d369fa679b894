#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/host/binding.h"
#include "engine/host/budget.h"
#include "engine/host/machine.h"
#include "engine/host/runtime_choice.h"
#include "engine/spec/spec.h"
#include "harness/space/definition.h"
#include "harness/space/settings.h"

namespace pinion::harness {

// The machine that candidates are checked against; synthetic in tests.
struct Host {
  Machine machine;
  Budget budget;
  std::vector<std::string> isas;  // that auto chooses from, weakest first
  RuntimeOffer runtime;           // libraries that can be preloaded, huge pages

  static Result<Host> This();
};

// One candidate configuration.
struct Point {
  std::string engine;  // its name in the definition
  Configuration configuration;
  std::vector<Setting> settings;  // unlike the base, in the order of the registry, and the
                                  // engine's own ones
  std::string label;  // "default", "threads_bind=0-1 isa=avx2"; "vllm: default" if engines race
  std::string infeasible;            // why it cannot run here; empty: it can
  std::vector<std::string> same_as;  // labels of other points with the same effective plan
  Plan plan;                         // of all replicas; empty if infeasible
};

// The baseline first: the first engine's defaults. Then for each engine its defaults, the grid and
// the listed candidates, in their order. If several engines race, an axis is left out for engines
// that lack the setting, and an engine's own one for Pinion's, unless its conditions ("when") say
// more; a condition of an axis sees the axes before it, the engines' own ones coming last. Points
// that run identically here (same CPUs, ISA path, element type and limits) are merged into
// the first of them; those that cannot run keep their reason, among them those that the engine's
// capacity check would refuse (engine/run/capacity.h). `model` is the sweep's. Errors (kUsage): a
// baseline that cannot run, a candidate with unknown settings, more than MostPoints combinations of
// an engine; of those, --strategy tpe searches as many, drawn by the definition's seed.
Result<std::vector<Point>> Expand(const Definition& definition, const EngineOptions& base,
                                  const Host& host, const DecoderSpec& model);
// More than any budget measures, except of a search that measures only proposals of its model.
constexpr size_t MostPoints(Strategy strategy) { return strategy == Strategy::kTpe ? 5000 : 1000; }

// Properties of the model and the engine that decide, besides the machine, which settings to try.
struct SpaceContext {
  EngineChoice engine;
  bool has_integers = true;  // some of the model's matrices are multiplied in them
  std::string dtype = {};    // of the checkpoint; "": unknown
  // Per rank: bytes of all of the load's contexts at once, and of the largest; 0: unknown.
  uint64_t kv_bytes_of_load = 0, kv_bytes_of_context = 0;
};

// The space without --def: bindings crossed with ranks; varied alone, CPU lists made from the
// topology, reserved cores, hardware threads, replicas, KV-cache space that binds, the second ISA
// path, a smaller step budget, types of weights and KV, and the runtime's settings. For other
// engines only the settings that they have.
Definition DefaultDefinition(const Host& host, const EngineOptions& base,
                             const SpaceContext& context);

// At most 6 configurations including the baseline, 6 rounds, trials of at most 12 s, 10 minutes:
// one change at a time, with the most promising on this machine first.
Definition QuickDefinition(const Host& host, const EngineOptions& base,
                           const SpaceContext& context);

}  // namespace pinion::harness
