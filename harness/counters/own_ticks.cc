#include "harness/counters/own_ticks.h"

#include <unistd.h>

#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <string>

#include "engine/base/file.h"
#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

struct Process {
  pid_t parent = 0;
  uint64_t ticks = 0;  // its own and those of children that have ended
};

// "1 (a name) S 0 ...": the name may contain anything, so parse from the last bracket.
std::optional<Process> ParseProcess(const std::string& stat) {
  const size_t end = stat.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  std::istringstream words(stat.substr(end + 1));
  std::string skipped;
  Process process;
  words >> skipped >> process.parent;
  for (int field = 5; field < 14; ++field) words >> skipped;
  uint64_t ticks = 0;  // utime, stime, cutime, cstime
  for (int field = 14; field < 18 && words >> ticks; ++field) process.ticks += ticks;
  return process;
}

std::map<pid_t, Process> Processes() {
  std::map<pid_t, Process> processes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const auto id = ParseInt(entry.path().filename().string(), "process");
    if (!id) continue;
    if (const auto process =
            ParseProcess(ReadFile(entry.path().string() + "/stat", 4096).value_or("")))
      processes[static_cast<pid_t>(*id)] = *process;
  }
  return processes;
}

}  // namespace

uint64_t OwnTicks() {
  const std::map<pid_t, Process> processes = Processes();
  uint64_t ticks = 0;
  for (const auto& [id, process] : processes) {
    pid_t ancestor = id;
    while (ancestor != getpid()) {
      const auto found = processes.find(ancestor);
      if (found == processes.end()) break;
      ancestor = found->second.parent;
    }
    if (ancestor == getpid()) ticks += process.ticks;
  }
  return ticks;
}

}  // namespace pinion::harness
