#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/run/settings.h"

namespace pinion::harness {

inline constexpr int kUsualPort = 8000;  // of `serve` and `launch`

// A command with its additions to the environment.
struct Command {
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> arguments;  // [0] is the program
};

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

// `pinion serve` with these options and so many engines; [0] is the running program.
Command ServeCommand(const Configuration& configuration, const std::string& host, int port);

// The closest equivalent with vLLM's CPU backend: `vllm serve MODEL` and its environment, without
// LD_PRELOAD, which a trial's processes inherit. `plan` as below; of its lists each engine of
// several takes those of its ranks.
Command VllmCommand(const Configuration& configuration, const Json& plan);

// The same as a shell line, with LD_PRELOAD, after one that writes the weights if
// the model is a preset. `plan` (ToJson(Plan), or null if unknown) gives explicit CPU lists,
// because vLLM's `auto` chooses differently.
std::string VllmShellText(const Configuration& configuration, const Json& plan);

// Settings of the configuration without a counterpart in vLLM; empty if it has all of them.
std::vector<std::string> WithoutVllmCounterpart(const Configuration& configuration);

}  // namespace pinion::harness
