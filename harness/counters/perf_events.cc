// Counters of processes: the kernel's own, which every machine has, and the cores'.

#include <linux/perf_event.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "harness/counters/perf_counter.h"
#include "harness/counters/sources.h"

namespace pinion::harness {
namespace {

struct NamedEvent {
  const char* name;
  PerfCounter::Event event;
  double unit;  // of one count, in the unit of the name
};

std::vector<pid_t> ThreadsOf(pid_t process) {
  std::vector<pid_t> threads;
  std::error_code ignored;
  const std::string folder = StrCat("/proc/", process, "/task");
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (const auto id = ParseInt(entry.path().filename().string(), "thread"))
      threads.push_back(static_cast<pid_t>(*id));
  return threads;
}

// Every event once per thread that there is; threads that these start are counted with them.
class ProcessEvents : public CounterSource {
 public:
  ProcessEvents(std::vector<NamedEvent> events, const CounterTarget& target)
      : events_(std::move(events)), processes_(target.processes) {
    if (processes_.empty()) processes_ = {getpid()};
  }

  std::optional<CounterGap> Examine() override {
    for (const NamedEvent& event : events_) {
      const auto counter = PerfCounter::Open(event.event, 0, -1);  // of the calling thread
      if (!counter) return counter.error();
    }
    return std::nullopt;
  }

  std::optional<CounterGap> Start() override {
    for (const pid_t process : processes_) {
      for (const pid_t thread : ThreadsOf(process)) {
        for (size_t event = 0; event < events_.size(); ++event) {
          auto counter = PerfCounter::Open(events_[event].event, thread, -1);
          if (!counter) return counter.error();
          user_only_ = user_only_ || counter->user_only();
          counters_.emplace_back(event, std::move(*counter));
        }
      }
    }
    if (counters_.empty()) return CounterGap("the process has ended");
    return std::nullopt;
  }

  CountedValues Stop(double) override {
    std::vector<CounterValue> values;
    for (const NamedEvent& event : events_) values.push_back({event.name, 0});
    for (const auto& [event, counter] : counters_) {
      const auto count = counter.Read();
      if (!count) return tl::unexpected(count.error());
      values[event].value += *count * events_[event].unit;
    }
    return values;
  }

 protected:
  bool user_only() const { return user_only_; }

 private:
  const std::vector<NamedEvent> events_;
  std::vector<pid_t> processes_;
  std::vector<std::pair<size_t, PerfCounter>> counters_;  // place in events_
  bool user_only_ = false;
};

// The frequency at which the processes ran: their cycles / their time on a CPU. /proc/cpuinfo and
// cpufreq tell the frequency at one moment, of idle CPUs too, and in a virtual machine a constant.
class CoreEvents final : public ProcessEvents {
 public:
  explicit CoreEvents(const CounterTarget& target)
      : ProcessEvents(
            {{"cycles", {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES}, 1},
             {"busy_s", {PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK}, 1e-9},
             {"instructions", {PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS}, 1},
             {"last_level_cache_misses", {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES}, 1}},
            target) {}

  CountedValues Stop(double seconds) override {
    CountedValues values = ProcessEvents::Stop(seconds);
    // Cycles of user code alone do not fit the time on a CPU, which includes the kernel's.
    if (values && !user_only() && (*values)[1].value > 0)
      values->push_back({"frequency_hz", (*values)[0].value / (*values)[1].value});
    return values;
  }
};

// Lines that the processes' cores read from near and from far memory.
class NumaLines final : public CounterSource {
 public:
  explicit NumaLines(const CounterTarget& target) : target_(target) {}

  std::optional<CounterGap> Examine() override {
    const std::string cpuinfo = ReadFile(target_.root + "proc/cpuinfo", 1 << 20).value_or("");
    const auto events = NumaEventsOf(cpuinfo);
    if (!events) return CounterGap("the events of this CPU for it are not known");
    lines_.emplace(
        std::vector<NamedEvent>{{"memory_local_bytes_per_s", events->local, kLineBytes},
                                {"memory_remote_bytes_per_s", events->remote, kLineBytes}},
        target_);
    return lines_->Examine();
  }
  std::optional<CounterGap> Start() override { return lines_->Start(); }
  CountedValues Stop(double seconds) override {
    CountedValues values = lines_->Stop(seconds);
    if (values)
      for (CounterValue& value : *values) value.value /= seconds;
    return values;
  }

 private:
  const CounterTarget target_;
  std::optional<ProcessEvents> lines_;
};

int64_t CpuNumber(const std::string& cpuinfo, const std::string& name) {
  std::istringstream lines(cpuinfo);
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> sides = Split(line, ':');
    if (sides.size() == 2 && Trim(sides[0]) == name)
      return ParseInt(Trim(sides[1]), name).value_or(-1);
  }
  return -1;
}

}  // namespace

// Source: the vendors' event lists, as tools/perf/pmu-events in Linux has them. AMD:
// ls_any_fills_from_sys.dram_io_near and .dram_io_far (another NUMA node). Intel: offcore requests
// answered by local and by remote memory.
std::optional<NumaEvents> NumaEventsOf(const std::string& cpuinfo) {
  const int64_t family = CpuNumber(cpuinfo, "cpu family"), model = CpuNumber(cpuinfo, "model");
  if (cpuinfo.find("AuthenticAMD") != std::string::npos && (family == 25 || family == 26))
    return NumaEvents{{PERF_TYPE_RAW, 0x0844}, {PERF_TYPE_RAW, 0x4044}};
  if (cpuinfo.find("GenuineIntel") == std::string::npos || family != 6) return std::nullopt;
  switch (model) {
    case 0x6a:  // Ice Lake: OCR.READS_TO_CORE.LOCAL_DRAM and .REMOTE_DRAM
    case 0x6c:
      return NumaEvents{{PERF_TYPE_RAW, 0x01b7, 0x104000477}, {PERF_TYPE_RAW, 0x01bb, 0x730000477}};
    case 0x8f:  // Sapphire and Emerald Rapids: the same; remote with the socket's other clusters
    case 0xcf:
      return NumaEvents{{PERF_TYPE_RAW, 0x012a, 0x104004477}, {PERF_TYPE_RAW, 0x012b, 0x738004477}};
    default:
      return std::nullopt;
  }
}

Source PerfSoftwareSource(const CounterTarget& target) {
  const auto event = [](uint64_t config) { return PerfCounter::Event{PERF_TYPE_SOFTWARE, config}; };
  return std::make_unique<ProcessEvents>(
      std::vector<NamedEvent>{{"cpu_s", event(PERF_COUNT_SW_TASK_CLOCK), 1e-9},
                              {"context_switches", event(PERF_COUNT_SW_CONTEXT_SWITCHES), 1},
                              {"cpu_migrations", event(PERF_COUNT_SW_CPU_MIGRATIONS), 1},
                              {"page_faults", event(PERF_COUNT_SW_PAGE_FAULTS), 1}},
      target);
}

Source PerfEventSource(const CounterTarget& target) { return std::make_unique<CoreEvents>(target); }

Source PerfNumaSource(const CounterTarget& target) { return std::make_unique<NumaLines>(target); }

}  // namespace pinion::harness
