#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace pinion::harness {

// vLLM's flags of `serve` (0.33), so that a command line written for it either means the same here
// or is refused with the reason. Those that Pinion has under the same name are its own flags; the
// table in vllm_flags.cc has all others.

// Adds them to `command`, hidden from its help, but for those that it has: flags without effect
// here are accepted with a notice on standard error, all others are refused (kUsage). Call it when
// all other flags have been added.
void AddVllmFlags(CLI::App& command);

// The refusal of those that drive a GPU alone, and of a --device that is none of ours; for commands
// that are not `serve`, too, which have that flag.
void RefuseGpuFlags(CLI::App& command);

// vLLM's short forms of several letters, "-tp", "-pp", in front of a value or "=", as their long
// ones; other arguments as they are.
std::string LongForm(const std::string& argument);

// The table of docs/vllm-flags.md: flags with their handling; `command` is `serve`.
std::string VllmFlagsTable(const CLI::App& command);

}  // namespace pinion::harness
