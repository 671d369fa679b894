#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/host/binding.h"
#include "engine/host/machine.h"
#include "engine/run/settings.h"
#include "harness/profile/command.h"
#include "harness/profile/other_engines.h"
#include "harness/space/engine_choice.h"

namespace pinion::harness {

// How to start an engine's server with a configuration and its plan.
struct EngineCommand {
  Command command;
  std::optional<std::vector<int>> cpus;  // affinity at start; unset: all CPUs
  std::vector<std::string> ignored;      // settings without a counterpart in this engine
};

// The command that `launch` starts, or for another engine the counterparts of its flags by the
// registry (engine/run/settings.h, docs/settings.md). `plan`: of all engines behind the server
// (PlanReplicas). The configuration says all, so Pinion's server gets the environment variables of
// settings empty, which is unset. A command of kind `command` has placeholders: {model}, {port},
// {threads}, {cpus}, {kv_cache_gib} and the key of every setting, such as {max_num_seqs}; one that
// is unset is 0.
//
// On a machine with several NUMA nodes, llama.cpp and commands whose CPUs lie on some of them start
// under `numactl --membind`. Servers listen on 127.0.0.1. Errors (kUsage): an unknown placeholder,
// a model that the engine cannot read. Settings that differ from their default and that the engine
// lacks (HasValue in harness/space) are reported as ignored.
Result<EngineCommand> CommandFor(const EngineChoice& engine, const Configuration& configuration,
                                 const Plan& plan, const Machine& machine, int port,
                                 const ServedLoad& load = {});

}  // namespace pinion::harness
