#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/host/binding.h"
#include "engine/host/machine.h"
#include "engine/run/options.h"
#include "harness/profile/command.h"
#include "harness/space/engine_choice.h"

namespace pinion::harness {

// How to start an engine's server as `options` and their plan say.
struct EngineCommand {
  Command command;
  std::optional<std::vector<int>> cpus;  // affinity that it is started with; unset: all there are
  std::vector<std::string> ignored;      // settings that this engine has no counterpart for
};

// What will be asked of a server, as far as its start must know it; 0: unknown.
struct ServedLoad {
  int clients = 0;          // most requests at a time
  int sequence_tokens = 0;  // longest prompt and its answer
};

// Pinion's own settings as `pinion serve` takes them, and in another engine's words:
//
//   setting                 vllm                            llama.cpp            command
//   threads_bind (CPUs)     VLLM_CPU_OMP_THREADS_BIND        -t -tb -C, affinity  {cpus}, affinity
//   kv_cache_space          VLLM_CPU_KVCACHE_SPACE           -                    {kv_cache_gib}
//   reserved_cpus           VLLM_CPU_NUM_OF_RESERVED_CPU     in the CPUs          in the CPUs
//   tensor_parallel         -tp                              -                    {tensor_parallel}
//   dtype                   --dtype                          - (the file's)       {dtype}
//   max_num_batched_tokens  --max-num-batched-tokens         -b -ub {max_num_batched_tokens}
//   max_num_seqs            --max-num-seqs                   -np                  {max_num_seqs}
//   max_model_len           --max-model-len                  -c (per sequence)    {max_model_len}
//   model, port, threads                                                          {model} {port}
//   {threads}
//
// llama.cpp divides a context of fixed size among its sequences, where ours are paged: it gets no
// more sequences than `load` has clients, and where max_model_len is unset room for the load's
// longest sequence in each.
// On a machine with several NUMA nodes, llama.cpp and commands whose CPUs lie on some of them start
// under `numactl --membind`. Servers listen on 127.0.0.1. Errors (kUsage): an unknown placeholder,
// a model that the engine cannot read. Settings off their default for which the engine has none
// (HasSetting in harness/space) are reported as ignored.
Result<EngineCommand> CommandFor(const EngineChoice& engine, const EngineOptions& options,
                                 const Plan& plan, const Machine& machine, int port,
                                 const ServedLoad& load = {});

// "0,1,5" -> "0x23", as llama.cpp's -C takes it.
std::string CpuMask(const std::vector<int>& cpus);

}  // namespace pinion::harness
