#pragma once

#include <string>
#include <vector>

#include "engine/host/binding.h"
#include "engine/run/settings.h"
#include "harness/profile/command.h"

// A configuration as the closest equivalents of other engines, by the registry's counterparts
// (engine/run/settings.h). `plan`: of all engines behind the server, without ranks if it is
// unknown; it gives explicit CPUs, because the others' own choice differs from ours.

namespace pinion::harness {

// Properties of the load that a server's start depends on; 0: unknown.
struct ServedLoad {
  int clients = 0;          // most requests at a time
  int sequence_tokens = 0;  // longest prompt and its answer
};

// `vllm serve MODEL` and its environment, without LD_PRELOAD, which a trial's processes inherit. Of
// the plan's lists each engine of several takes those of its ranks.
Command VllmCommand(const Configuration& configuration, const Plan& plan);

// `llama-server -m MODEL`. It divides a context of fixed size among its sequences, while ours are
// paged: it gets no more sequences than `load` has clients and, if max_model_len is unset, room for
// the load's longest sequence in each.
Command LlamaCommand(const Configuration& configuration, const Plan& plan, const ServedLoad& load);

// The same as shell lines, with LD_PRELOAD, after those that write the files of the engine if the
// model is a preset or, for llama.cpp, not a GGUF file.
std::string VllmShellText(const Configuration& configuration, const Plan& plan);
std::string LlamaShellText(const Configuration& configuration, const Plan& plan,
                           const ServedLoad& load);

// "isa=avx2": settings of the configuration without a counterpart in another engine, which is
// &SettingRow::vllm or &SettingRow::llama_cpp.
std::vector<std::string> WithoutCounterpart(const Configuration& configuration,
                                            Counterpart SettingRow::*engine);

// "0,1,5" -> "0x23", the form of llama.cpp's -C.
std::string CpuMask(const std::vector<int>& cpus);

}  // namespace pinion::harness
