// Counters of processes: the CPU's own, and below them the kernel's, which every machine has.

#include <linux/perf_event.h>
#include <unistd.h>

#include <filesystem>

#include "engine/base/strings.h"
#include "harness/counters/perf_counter.h"
#include "harness/counters/sources.h"

namespace pinion::harness {
namespace {

struct NamedEvent {
  const char* name;
  PerfCounter::Event event;
  double unit;  // of one count, in what the name says
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
class ProcessEvents final : public CounterSource {
 public:
  ProcessEvents(const char* name, std::vector<NamedEvent> events, const CounterTarget& target)
      : name_(name), events_(std::move(events)), processes_(target.processes) {
    if (processes_.empty()) processes_ = {getpid()};
  }

  const char* name() const override { return name_; }

  Status Start() override {
    for (const pid_t process : processes_) {
      for (const pid_t thread : ThreadsOf(process)) {
        for (size_t event = 0; event < events_.size(); ++event) {
          auto counter = PerfCounter::Open(events_[event].event, thread, -1);
          if (!counter) return Unexpected(std::move(counter).error());
          counters_.push_back({event, std::move(*counter)});
        }
      }
    }
    if (counters_.empty()) return Fail(ErrorCode::kUnsupported, "the process has ended");
    return {};
  }

  Result<std::vector<CounterValue>> Stop() override {
    std::vector<CounterValue> values;
    for (const NamedEvent& event : events_) values.push_back({event.name, 0});
    for (const auto& [event, counter] : counters_) {
      PINION_ASSIGN(const double count, counter.Read());
      values[event].value += count * events_[event].unit;
    }
    return values;
  }

 private:
  const char* const name_;
  const std::vector<NamedEvent> events_;
  std::vector<pid_t> processes_;
  std::vector<std::pair<size_t, PerfCounter>> counters_;  // place in events_
};

}  // namespace

std::unique_ptr<CounterSource> PerfSoftwareSource(const CounterTarget& target) {
  const auto event = [](uint64_t config) { return PerfCounter::Event{PERF_TYPE_SOFTWARE, config}; };
  return std::make_unique<ProcessEvents>(
      "perf_software",
      std::vector<NamedEvent>{{"cpu_s", event(PERF_COUNT_SW_TASK_CLOCK), 1e-9},
                              {"context_switches", event(PERF_COUNT_SW_CONTEXT_SWITCHES), 1},
                              {"cpu_migrations", event(PERF_COUNT_SW_CPU_MIGRATIONS), 1},
                              {"page_faults", event(PERF_COUNT_SW_PAGE_FAULTS), 1}},
      target);
}

std::unique_ptr<CounterSource> PerfEventSource(const CounterTarget& target) {
  const auto event = [](uint64_t config) { return PerfCounter::Event{PERF_TYPE_HARDWARE, config}; };
  return std::make_unique<ProcessEvents>(
      "perf_event",
      std::vector<NamedEvent>{{"instructions", event(PERF_COUNT_HW_INSTRUCTIONS), 1},
                              {"cycles", event(PERF_COUNT_HW_CPU_CYCLES), 1},
                              {"last_level_cache_misses", event(PERF_COUNT_HW_CACHE_MISSES), 1}},
      target);
}

}  // namespace pinion::harness
