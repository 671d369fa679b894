// `pinion`: one binary, one subcommand per job.

#include <cstdio>
#include <string>
#include <vector>

#include "harness/cli/commands.h"

namespace pinion::harness {
namespace {

// In the order that --help lists them.
const std::vector<void (*)(CLI::App&, int&)> kCommands = {
    AddTopo,
    AddModel,
    AddRun,
    AddScore,
    AddTokenize,
    AddLaunch,
};

// `-tp 2` and `-tp=2`, as vLLM's users write it, would be read as bundled one-letter flags.
std::vector<std::string> RewriteArguments(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (std::string& argument : arguments) {
    if (argument == "-tp") argument = "--tensor-parallel-size";
    if (argument.rfind("-tp=", 0) == 0) argument = "--tensor-parallel-size=" + argument.substr(4);
  }
  return {arguments.rbegin(), arguments.rend()};  // CLI11 takes them last first
}

int Main(int argc, char** argv) {
  CLI::App app("Finds the fastest way to run a language model on the CPUs you have, proves it, and "
               "launches it that way.",
               "pinion");
  app.set_version_flag("--version", "pinion 0.1.0");
  app.require_subcommand(1);
  int exit_code = 0;
  for (auto* add : kCommands) add(app, exit_code);
  try {
    app.parse(RewriteArguments(argc, argv));
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  }
  return exit_code;
}

}  // namespace

int Report(const Error& error) {
  std::fprintf(stderr, "pinion: %s\n", error.message.c_str());
  return ExitCode(error);
}

}  // namespace pinion::harness

int main(int argc, char** argv) { return pinion::harness::Main(argc, argv); }
