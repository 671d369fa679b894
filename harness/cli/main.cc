// `pinion`: one binary, one subcommand per job.

#include <cctype>
#include <cstdio>
#include <string>
#include <vector>

#include "engine/base/strings.h"
#include "harness/cli/commands.h"

namespace pinion::harness {
namespace {

// In the order that --help lists them.
const std::vector<void (*)(CLI::App&, int&)> kCommands = {
    AddTopo,
    AddProbe,
    AddModel,
    AddRun,
    AddScore,
    AddTokenize,
    AddBench,
    AddServe,
    AddSweep,
    AddReport,
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

// The library's complaint as one of our sentences, with the way out.
Error Describe(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  std::vector<std::string> names;
  const CLI::App* chosen = nullptr;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (!command->get_group().empty()) names.push_back(command->get_name());  // no group: hidden
    if (command->get_name() == first) chosen = command;
  }
  if (!chosen && (first.empty() || first[0] != '-'))
    return {ErrorCode::kUsage, StrCat(first.empty() ? "no command given" : "unknown command '" + first + "'",
                                      "; the commands are ", Join(names, ", "))};
  std::string text = error.what();
  const auto lower = [&](size_t i) { return std::islower(static_cast<unsigned char>(text[i])) != 0; };
  if (text.size() > 1 && lower(1))  // not the name of a positional
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return {ErrorCode::kUsage, StrCat(text, "; see pinion ", chosen ? first + " " : "", "--help")};
}

int Main(int argc, char** argv) {
  CLI::App app("Finds the fastest way to run a language model on the CPUs you have, proves it, and "
               "launches it that way.",
               "pinion");
  app.set_version_flag("--version", "pinion 0.1.0");
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  int exit_code = 0;
  for (auto* add : kCommands) add(app, exit_code);
  try {
    app.parse(RewriteArguments(argc, argv));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version
    return Report(Describe(app, error, argc, argv));
  }
  // A full disk shows only when the last of the output leaves the buffer.
  if (std::fflush(stdout) != 0 || std::ferror(stdout))
    return Report({ErrorCode::kIo, "cannot write to standard output"});
  return exit_code;
}

}  // namespace

int Report(const Error& error) {
  std::fprintf(stderr, "pinion: %s\n", error.message.c_str());
  return ExitCode(error);
}

}  // namespace pinion::harness

int main(int argc, char** argv) { return pinion::harness::Main(argc, argv); }
