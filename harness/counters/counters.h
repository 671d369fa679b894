#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion::harness {

// One number; the name carries its unit: "memory_read_bytes".
struct CounterValue {
  std::string name;
  double value = 0;
};

// The counts of one source between Start and Stop, or the reason why there are none.
struct CounterReading {
  std::string source;  // "perf_event"
  std::vector<CounterValue> values;
  std::string unavailable;  // why there are no values, in one phrase; else empty
};

// One adapter: a part of the kernel, or a tool, that counts. Errors are reasons: "the kernel has no
// ...", with the way out.
class CounterSource {
 public:
  virtual ~CounterSource() = default;
  virtual const char* name() const = 0;
  virtual Status Start() = 0;
  virtual Result<std::vector<CounterValue>> Stop() = 0;  // once, after a Start that succeeded
};

// The processes to count.
struct CounterTarget {
  std::vector<pid_t> processes;  // and their threads; empty: this process
  std::string root = "/";        // of /proc, /sys and /usr: tests lay out a folder
};

// All sources, from the simplest up. One that this machine lacks is a reading with the reason;
// nothing is estimated in its place, and no setting of the system is changed.
//   perf_software  the kernel's own events of the processes: task-clock, switches, migrations
//   perf_event     the CPU's counters of the processes: instructions, cycles, last-level misses
//   uncore         the memory controllers' counters, of the whole machine
//   rapl           joules of the packages, of the whole machine
//   resctrl        bytes from memory past the last-level caches, of the whole machine
//   pcm            Intel's pcm-memory as a child process, of the whole machine
std::vector<std::unique_ptr<CounterSource>> CounterSources(const CounterTarget& target);

// All sources around one measurement. Call Start and Stop on one thread.
class Counters {
 public:
  static Counters Start(const CounterTarget& target);
  std::vector<CounterReading> Stop();

 private:
  struct Running {
    std::unique_ptr<CounterSource> source;
    std::string unavailable;
  };
  std::vector<Running> running_;
};

// The value of that name; nullptr if no source has it.
const double* FindValue(const std::vector<CounterReading>& readings, const std::string& name);

// {"perf_event":{"instructions":n,...},"rapl":"not available, because ..."}
Json ToJson(const std::vector<CounterReading>& readings);
// The same as text, a line per source.
std::string Render(const std::vector<CounterReading>& readings);

}  // namespace pinion::harness
