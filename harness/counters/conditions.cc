#include "harness/counters/conditions.h"

#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "harness/counters/own_ticks.h"
#include "harness/stats/text.h"

namespace pinion::harness {
namespace {

// Limits above which a measurement is marked as disturbed. Steal: docs/verdicts.md. Pressure and
// switches: a quiet machine shows 1 % and 20 per second and thread, a disturbed one 97 % and 200.
// A quiet machine's daemons take half a percent.
constexpr double kStealShare = 0.01, kPressureShare = 0.10, kSwitchesPerThreadSecond = 100,
                 kOthersShare = 0.02;
// Starting and ending a load cause switches too, which do not matter over seconds but would look
// like a high rate in a tenth of one: any load may have as many as are allowed per second.
constexpr double kLeastSwitchSeconds = 1;

std::string Content(const std::string& path) { return ReadFile(path, 1 << 20).value_or(""); }

// user nice system idle iowait irq softirq steal
void ReadStat(Conditions& conditions) {
  std::istringstream line(Content("/proc/stat"));
  std::string name;
  line >> name;
  uint64_t ticks = 0;
  for (int column = 0; column < 8 && line >> ticks; ++column) {
    conditions.cpu_ticks += ticks;
    if (column == 7) {
      conditions.steal_ticks = ticks;
    } else if (column != 3 && column != 4) {
      conditions.busy_ticks += ticks;
    }
  }
}

// "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234"
void ReadPressure(Conditions& conditions) {
  const std::string text = Content("/proc/pressure/cpu");
  const size_t at = text.find("total=");
  if (at != std::string::npos) std::istringstream(text.substr(at + 6)) >> conditions.pressure_us;
}

// The cgroup's own cpu.stat, under version 2 or the cpu controller of version 1.
std::string CpuStatPath() {
  std::istringstream lines(Content("/proc/self/cgroup"));
  std::string line, path = "/sys/fs/cgroup/cpu.stat";
  while (std::getline(lines, line)) {
    const std::vector<std::string> parts = Split(line, ':');
    if (parts.size() < 3) continue;
    if (parts[1].empty()) path = StrCat("/sys/fs/cgroup", parts[2], "/cpu.stat");
    for (const std::string& controller : Split(parts[1], ','))
      if (controller == "cpu") return StrCat("/sys/fs/cgroup/cpu", parts[2], "/cpu.stat");
  }
  return path;
}

void ReadThrottling(Conditions& conditions) {
  std::istringstream words(Content(CpuStatPath()));
  std::string key;
  uint64_t value = 0;
  while (words >> key >> value)
    if (key == "nr_throttled") conditions.throttled_periods = value;
}

// Field 12 of /proc/PID/stat; the name in field 2 may contain anything.
uint64_t MajorFaults(pid_t process) {
  const std::string stat = Content(StrCat("/proc/", process, "/stat"));
  std::istringstream words(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
  std::string skipped;
  for (int field = 3; field < 12; ++field) words >> skipped;
  uint64_t faults = 0;
  words >> faults;
  return faults;
}

uint64_t InvoluntarySwitches(const std::string& task) {
  std::istringstream words(Content(task + "/status"));
  std::string word;
  uint64_t switches = 0;
  while (words >> word)
    if (word == "nonvoluntary_ctxt_switches:" && words >> switches) return switches;
  return 0;
}

void ReadThread(const std::filesystem::path& task, Conditions& conditions) {
  const auto id = ParseInt(task.filename().string(), "thread");
  if (!id) return;
  const int thread = static_cast<int>(*id);
  conditions.threads.push_back(thread);
  conditions.involuntary_switches += InvoluntarySwitches(task.string());
  cpu_set_t cpus;
  if (sched_getaffinity(thread, sizeof cpus, &cpus) != 0 || CPU_COUNT(&cpus) != 1) return;
  int cpu = 0;
  while (!CPU_ISSET(cpu, &cpus)) ++cpu;
  conditions.pinned[thread] = cpu;
}

}  // namespace

Conditions Conditions::Of(const std::vector<pid_t>& processes, const std::vector<pid_t>& own) {
  Conditions conditions;
  conditions.now_ns = NowNs();
  ReadStat(conditions);
  conditions.own_ticks = OwnTicks(own);
  ReadPressure(conditions);
  ReadThrottling(conditions);
  for (const pid_t process : processes) {
    conditions.major_faults += MajorFaults(process);
    std::error_code ended;
    for (const auto& task :
         std::filesystem::directory_iterator(StrCat("/proc/", process, "/task"), ended))
      ReadThread(task.path(), conditions);
  }
  return conditions;
}

size_t MovedThreads(const std::map<int, int>& before, const std::map<int, int>& after,
                    const std::vector<int>& alive) {
  size_t moved = 0;
  for (const auto& [thread, cpu] : before) {
    if (std::find(alive.begin(), alive.end(), thread) == alive.end()) continue;
    const auto now = after.find(thread);
    moved += now == after.end() || now->second != cpu ? 1 : 0;
  }
  return moved;
}

double StealShare(const Conditions& before, const Conditions& after) {
  if (after.cpu_ticks <= before.cpu_ticks) return 0;
  return static_cast<double>(after.steal_ticks - before.steal_ticks) /
         static_cast<double>(after.cpu_ticks - before.cpu_ticks);
}

double PressureShare(const Conditions& before, const Conditions& after) {
  if (after.now_ns <= before.now_ns) return 0;
  // The two clocks are not read at the same moment, so the share may exceed 1.
  return std::min(1.0, static_cast<double>(after.pressure_us - before.pressure_us) * 1e3 /
                           static_cast<double>(after.now_ns - before.now_ns));
}

double OthersShare(const Conditions& before, const Conditions& after) {
  if (after.cpu_ticks <= before.cpu_ticks) return 0;
  const auto busy = static_cast<double>(after.busy_ticks - before.busy_ticks);
  // It may be less than before: a child that ended without being waited for took its ticks with it.
  const auto own =
      static_cast<double>(std::max(after.own_ticks, before.own_ticks) - before.own_ticks);
  return std::max(0.0, busy - own) / static_cast<double>(after.cpu_ticks - before.cpu_ticks);
}

namespace {

// Threads that end take their counts along.
uint64_t Grown(uint64_t before, uint64_t after) { return after > before ? after - before : 0; }

}  // namespace

std::vector<std::string> Disturbances(const Conditions& before, const Conditions& after,
                                      int threads) {
  std::vector<std::string> found;
  const double seconds = static_cast<double>(after.now_ns - before.now_ns) * 1e-9;
  if (seconds <= 0) return found;
  const double steal = StealShare(before, after), pressure = PressureShare(before, after);
  if (steal > kStealShare) found.push_back(Printf("steal %.1f %%", steal * 100));
  const double others = OthersShare(before, after);
  if (const size_t moved = MovedThreads(before.pinned, after.pinned, after.threads))
    found.push_back(StrCat(moved, " pinned threads were moved by others"));
  if (!before.knows_own || !after.knows_own || others <= kOthersShare) return found;
  if (const uint64_t faults = Grown(before.major_faults, after.major_faults))
    found.push_back(StrCat(faults, " major faults"));
  if (pressure > kPressureShare)
    found.push_back(StrCat(Printf("CPU pressure %.0f %%, ", pressure * 100),
                           Printf("others took %.0f %% of the CPUs", others * 100)));
  if (const uint64_t periods = Grown(before.throttled_periods, after.throttled_periods))
    found.push_back(StrCat("throttled in ", periods, " periods"));
  const auto switches =
      static_cast<double>(Grown(before.involuntary_switches, after.involuntary_switches));
  if (switches > kSwitchesPerThreadSecond * threads * std::max(seconds, kLeastSwitchSeconds))
    found.push_back(Printf("%.0f involuntary switches per second", switches / seconds));
  return found;
}

}  // namespace pinion::harness
