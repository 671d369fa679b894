#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/run/options.h"

namespace pinion::harness {

// A command with its additions to the environment.
struct Command {
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> arguments;  // [0] is the program
};

// Wraps the command in `taskset`, so that it starts on these CPUs; unchanged without CPUs.
Command OnCpus(Command command, const std::optional<std::vector<int>>& cpus);

// As a user would type it into a shell, with the necessary quotes.
std::string ShellText(const Command& command);
std::string ShellQuote(const std::string& word);

// Appends every one of the flags "-b,-ub" with the value's text, or of "--on,!--off" the one for
// it.
void AddFlags(const std::string& flags, const Json& value, const std::string& text,
              std::vector<std::string>& arguments);

// MODEL and the flags of `pinion serve|run|bench` that give `options`; options at their defaults
// are left out.
std::vector<std::string> EngineArguments(const EngineOptions& options);

// `pinion serve` with these options; [0] is the running program.
Command ServeCommand(const EngineOptions& options, const std::string& host, int port);

// The closest equivalent with vLLM's CPU backend: `vllm serve MODEL` and its environment. `plan` as
// below.
Command VllmCommand(const EngineOptions& options, const Json& plan);

// The same as a shell line, after one that writes the weights if
// the model is a preset. `plan` (ToJson(Plan), or null if unknown) gives explicit CPU lists,
// because vLLM's `auto` chooses differently.
std::string VllmShellText(const EngineOptions& options, const Json& plan);

// Settings of `options` without a counterpart in vLLM; empty if it has all of them.
std::vector<std::string> WithoutVllmCounterpart(const EngineOptions& options);

}  // namespace pinion::harness
