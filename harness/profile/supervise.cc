#include "harness/profile/supervise.h"

#include <signal.h>

#include <cstring>

#include "engine/base/process.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

// `serve` lets running requests finish for up to 30 s.
constexpr double kStopSeconds = 35, kLookSeconds = 0.1;

Status SayEnded(size_t index, size_t count, const Process::Exit& exit) {
  const std::string how =
      exit.signal ? StrCat("was ended by signal ", exit.signal, " (", strsignal(exit.signal), ")")
                  : StrCat("ended with exit code ", exit.code);
  return Fail(ErrorCode::kFailed,
              StrCat("replica ", index + 1, " of ", count, " ", how, "; all others were stopped"));
}

// Asks all at once, so that waiting takes only as long as the slowest.
void StopAll(std::vector<Process>& processes) {
  for (Process& process : processes) process.Signal(SIGTERM);
  for (Process& process : processes) {
    process.Wait(kStopSeconds);
    process.Stop(0);
  }
}

}  // namespace

Status Supervise(const std::vector<LaunchedServer>& servers, const std::function<bool()>& stopped) {
  std::vector<Process> processes;
  for (const LaunchedServer& server : servers) {
    Process::Options options;
    options.arguments = server.command.arguments;
    options.environment = server.command.environment;
    options.cpus = server.cpus;
    PINION_ASSIGN(Process process, Process::Start(options));
    processes.push_back(std::move(process));
  }
  for (size_t at = 0; !stopped(); at = (at + 1) % processes.size()) {
    const auto exit = processes[at].Wait(kLookSeconds / static_cast<double>(processes.size()));
    if (!exit) continue;
    StopAll(processes);
    return SayEnded(at, servers.size(), *exit);
  }
  StopAll(processes);
  return {};
}

}  // namespace pinion::harness
