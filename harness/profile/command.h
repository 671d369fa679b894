#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/run/options.h"

namespace pinion::harness {

// A command with what it adds to the environment.
struct Command {
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> arguments;  // [0] is the program
};

// Under `taskset`, so that it starts on these CPUs; as it is where there are none.
Command OnCpus(Command command, const std::optional<std::vector<int>>& cpus);

// As a person would type it into a shell, everything quoted that needs it.
std::string ShellText(const Command& command);
std::string ShellQuote(const std::string& word);

// MODEL and the flags of `pinion serve|run|bench` that give `options`; what is at its default is
// left out.
std::vector<std::string> EngineArguments(const EngineOptions& options);

// `pinion serve` with these options; [0] is the running program.
Command ServeCommand(const EngineOptions& options, const std::string& host, int port);

// What comes closest with vLLM's CPU backend: `vllm serve MODEL` and its environment. `plan` as
// below.
Command VllmCommand(const EngineOptions& options, const Json& plan);

// The same for a person: a shell line, after one that writes the weights where
// the model is a preset. `plan` (ToJson(Plan), or null where unknown) gives explicit CPU lists,
// because vLLM's `auto` decides otherwise.
std::string VllmShellText(const EngineOptions& options, const Json& plan);

// Settings of `options` that vLLM has no counterpart for; empty: it can be told everything.
std::vector<std::string> WithoutVllmCounterpart(const EngineOptions& options);

}  // namespace pinion::harness
