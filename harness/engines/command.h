#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/host/binding.h"
#include "engine/host/machine.h"
#include "engine/run/settings.h"
#include "harness/profile/command.h"
#include "harness/space/engine_choice.h"

namespace pinion::harness {

// How to start an engine's server with a configuration and its plan.
struct EngineCommand {
  Command command;
  std::optional<std::vector<int>> cpus;  // affinity at start; unset: all CPUs
  std::vector<std::string> ignored;      // settings without a counterpart in this engine
};

// Properties of the load that a server's start depends on; 0: unknown.
struct ServedLoad {
  int clients = 0;          // most requests at a time
  int sequence_tokens = 0;  // longest prompt and its answer
};

// What `launch` would start, or for another engine the counterparts of its flags by the registry
// (engine/run/settings.h, docs/settings.md). `plan`: of all engines behind the server
// (PlanReplicas). The configuration says all, so Pinion's server gets the environment variables of
// settings empty, which is unset. A command of kind `command` has placeholders: {model},
// {port}, {threads}, {cpus}, {kv_cache_gib}, {tensor_parallel}, {dtype}, {max_num_batched_tokens},
// {max_num_seqs} and {max_model_len}.
//
// llama.cpp divides a context of fixed size among its sequences, while Pinion's are paged: it gets
// no more sequences than `load` has clients and, if max_model_len is unset, room for the load's
// longest sequence in each.
// On a machine with several NUMA nodes, llama.cpp and commands whose CPUs lie on some of them start
// under `numactl --membind`. Servers listen on 127.0.0.1. Errors (kUsage): an unknown placeholder,
// a model that the engine cannot read. Settings that differ from their default and that the engine
// lacks (HasValue in harness/space) are reported as ignored.
Result<EngineCommand> CommandFor(const EngineChoice& engine, const Configuration& configuration,
                                 const Plan& plan, const Machine& machine, int port,
                                 const ServedLoad& load = {});

// "0,1,5" -> "0x23", the form of llama.cpp's -C.
std::string CpuMask(const std::vector<int>& cpus);

}  // namespace pinion::harness
