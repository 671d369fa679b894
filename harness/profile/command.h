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

}  // namespace pinion::harness
