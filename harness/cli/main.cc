// `pinion`: one binary, one subcommand per job.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "engine/base/printable.h"
#include "engine/base/strings.h"
#include "engine/base/trace.h"
#include "engine/base/version.h"
#include "engine/comm/world.h"
#include "engine/host/affinity.h"
#include "engine/run/follow.h"
#include "harness/cli/commands.h"
#include "harness/cli/usage_error.h"
#include "harness/cli/vllm_flags.h"
#include "harness/engines/server.h"
#include "harness/trial/generator_process.h"

namespace pinion::harness {
namespace {

// The commands that a function declares.
struct Declared {
  std::vector<std::string> names;
  void (*add)(CLI::App&, int&);
};

// In the order that --help lists them. The hidden ones that describe all others are not named here.
const std::vector<Declared> kCommands = {
    {{"topo"}, AddTopo},     {{"doctor"}, AddDoctor},
    {{"probe"}, AddProbe},   {{"model"}, AddModel},
    {{"run"}, AddRun},       {{"run-batch"}, AddRunBatch},
    {{"score"}, AddScore},   {{"embed"}, AddEmbed},
    {{"rank"}, AddRank},     {{"tokenize"}, AddTokenize},
    {{"bench"}, AddBench},   {{"trial", kGeneratorCommand, kGuardCommand}, AddTrial},
    {{"serve"}, AddServe},   {{"engine-worker"}, AddEngineWorker},
    {{"load"}, AddLoad},     {{"sweep"}, AddSweep},
    {{"report"}, AddReport}, {{"compare"}, AddCompare},
    {{"launch"}, AddLaunch}, {{}, AddDescribe},
};

// The parser compares each flag's names with those before it, so that to declare all commands costs
// a process more than most of its other work at start, and a server is several processes. A command
// line that begins with a name gets the command of that name alone; help and mistakes get all.
void Declare(CLI::App& app, const std::string& first, int& exit_code) {
  for (const Declared& each : kCommands)
    if (std::find(each.names.begin(), each.names.end(), first) != each.names.end())
      return each.add(app, exit_code);
  for (const Declared& each : kCommands) each.add(app, exit_code);
}

// A standard descriptor that the caller closed would be given to the next file or socket, which
// then gets our messages. In its place comes one that cannot be used, so that writing still fails.
void OccupyStandardDescriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(fd, F_GETFD) < 0)  // the lowest that is free, so it becomes this one
      static_cast<void>(open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY));
}

// Replaces a launcher's useless default; if that fails, the plan shows the CPUs that are left.
void TakeCpusOfLauncher() {
  const auto launcher = LauncherWithCpus();
  if (!launcher) return;
  if (const auto cpus = AffinityOf(*launcher)) static_cast<void>(SetThreadAffinity(*cpus));
}

// vLLM's users write `-tp 2` and `-tp=2`, which CLI11 would read as bundled one-letter flags.
std::vector<std::string> RewriteArguments(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (std::string& argument : arguments) argument = LongForm(argument);
  return {arguments.rbegin(), arguments.rend()};  // CLI11 takes them in reverse
}

int Main(int argc, char** argv) {
  OccupyStandardDescriptors();
  TakeCpusOfLauncher();
  if (const auto launched = Launched(); launched && launched->process > 0)
    return FollowLeader();        // with any command: the leader runs it
  std::signal(SIGXFSZ, SIG_IGN);  // so that writing beyond `ulimit -f` fails with an error message
  CLI::App app(
      "Finds the fastest way to run a language model on the CPUs you have, shows the evidence, and "
      "starts a server with those settings.",
      "pinion");
  app.set_version_flag("--version", StrCat("pinion ", Version()));
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  int exit_code = 0;
  Declare(app, argc > 1 ? argv[1] : "", exit_code);
  // After the commands, which would inherit it.
  app.footer(
      "Every command has --help. Exit codes: 0 done, 1 failed, 2 bad usage.\n"
      "  pinion sweep preset:tiny --quick --out out/tiny     # a first sweep, at most 10 minutes\n"
      "  pinion launch out/tiny/profiles/balanced.json       # the server that it recommends\n");
  try {
    app.parse(RewriteArguments(argc, argv));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return Report(DescribeUsage(app, error, argc, argv));
    app.exit(error);  // --help and --version
  }
  if (const Status traced = trace::End(); !traced) exit_code = Report(traced.error());
  // A full disk shows only when the end of the output leaves the buffer. A command that failed
  // has already reported why.
  std::cout.flush();
  if ((!std::cout || std::fflush(stdout) != 0 || std::ferror(stdout)) && exit_code == 0)
    exit_code = Report({ErrorCode::kIo, "cannot write to standard output"});
  ReleaseFollowers(exit_code);
  return exit_code;
}

}  // namespace

int Report(const Error& error) {
  // Errors quote files and requests, whose bytes must not steer the terminal.
  std::fprintf(stderr, "pinion: %s\n", Printable(error.message, "\n\t").c_str());
  return ExitCode(error);
}

// https://no-color.org: any value but the empty one.
bool WantsColour() {
  const char* no_colour = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) && !(no_colour && *no_colour);
}

}  // namespace pinion::harness

// An exception that nobody expects shall end in a core dump that shows where it came from.
int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape)
  return pinion::harness::Main(argc, argv);
}
