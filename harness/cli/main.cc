// `pinion`: one binary, one subcommand per job.

#include <cctype>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "engine/base/strings.h"
#include "engine/base/trace.h"
#include "harness/cli/commands.h"

namespace pinion::harness {
namespace {

// In the order that --help lists them.
const std::vector<void (*)(CLI::App&, int&)> kCommands = {
    AddTopo,  AddDoctor, AddProbe, AddModel, AddRun,    AddScore,   AddTokenize,
    AddBench, AddServe,  AddLoad,  AddSweep, AddReport, AddCompare, AddLaunch,
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

// "run", or "model make": the command that the arguments begin with, as far as it is one.
std::string CommandNamed(const CLI::App& app, int argc, char** argv) {
  std::string path;
  const CLI::App* at = &app;
  for (int i = 1; i < argc; ++i) {
    const CLI::App* next = nullptr;
    for (const CLI::App* command : at->get_subcommands({}))
      if (command->get_name() == argv[i]) next = command;
    if (!next) break;
    path += std::string(argv[i]) + " ";
    at = next;
  }
  return path;
}

// The library's complaint as one of our sentences, with the way out.
Error Describe(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  const std::string command = CommandNamed(app, argc, argv);
  if (command.empty() && (first.empty() || first[0] != '-')) {
    std::vector<std::string> names;
    for (const CLI::App* each : app.get_subcommands({}))
      if (!each->get_group().empty()) names.push_back(each->get_name());  // no group: hidden
    return {ErrorCode::kUsage,
            StrCat(first.empty() ? "no command given" : "unknown command '" + first + "'",
                   "; the commands are ", Join(names, ", "))};
  }
  std::string text = error.what();
  const auto upper = [&](size_t i) {
    return std::isupper(static_cast<unsigned char>(text[i])) != 0;
  };
  if (text.size() > 1 && !upper(1))  // not the name of a positional
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return {ErrorCode::kUsage, StrCat(text, "; see pinion ", command, "--help")};
}

int Main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on files (ulimit -f) is a write that fails, and says so
  CLI::App app(
      "Finds the fastest way to run a language model on the CPUs you have, proves it, and "
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
    if (error.get_exit_code() != 0) return Report(Describe(app, error, argc, argv));
    app.exit(error);  // --help and --version
  }
  if (const Status traced = trace::End(); !traced) exit_code = Report(traced.error());
  // A full disk shows only when the last of the output leaves the buffer; a command that failed
  // has said why already.
  std::cout.flush();
  if ((!std::cout || std::fflush(stdout) != 0 || std::ferror(stdout)) && exit_code == 0)
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
