#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion::harness {

// One number; the name carries its unit: "memory_read_bytes_per_s".
struct CounterValue {
  std::string name;
  double value = 0;
};

// Why a source counts nothing, in one phrase, and the command that enables it.
struct CounterGap {
  CounterGap(std::string why, std::string command = "")
      : reason(std::move(why)), fix(std::move(command)) {}
  CounterGap(Error error) : reason(std::move(error.message)) {}
  std::string reason;
  std::string fix;  // may be empty
};
using CountedValues = tl::expected<std::vector<CounterValue>, CounterGap>;

// The counts of one quantity between Start and Stop, or the reasons why there are none.
struct CounterReading {
  std::string quantity;  // "energy": see CounterOrder
  std::string source;    // the one that counted, "rapl"; "" if none did
  std::vector<CounterValue> values;
  std::string unavailable;  // why there are no values; else empty
  std::string fix;          // the first command that would enable a source; may be empty
  double seconds = 0;       // from Start to Stop
};

// One adapter: a part of the kernel, or a tool, that counts.
class CounterSource {
 public:
  virtual ~CounterSource() = default;
  // Whether it could count here. Starts no program and leaves no counter behind.
  virtual std::optional<CounterGap> Examine() = 0;
  virtual std::optional<CounterGap> Start() = 0;  // once, after an Examine without a gap
  // Once, after a Start that succeeded; `seconds` have passed since then.
  virtual CountedValues Stop(double seconds) = 0;
};

// The processes to count.
struct CounterTarget {
  std::vector<pid_t> processes;  // and their threads; empty: this process
  std::string root = "/";        // of /proc, /sys, /dev and PATH: tests lay out a folder
  double patience_s = 5;         // for a tool to end before it is killed
};

// A source and the counters that it programs. Sources of the kernel share them, because the kernel
// arbitrates; a tool that programs them itself must be their only user.
struct CounterSourceInfo {
  const char* name;
  std::unique_ptr<CounterSource> (*make)(const CounterTarget&);
  enum Hardware { kNone, kCore, kMemoryControllers } programs = kNone;
  bool past_the_kernel = false;
};

// A quantity and its sources, in the order in which they are tried: the first that starts counts
// it, and no other does.
struct CounterChoice {
  const char* quantity;  // "numa"
  const char* shown;     // "local and remote memory traffic"
  std::vector<CounterSourceInfo> sources;
};
// All quantities, in the order in which they are started.
const std::vector<CounterChoice>& CounterOrder();

// All quantities around one measurement. Call Start and Stop on one thread. No setting of the
// system is changed, and nothing is estimated for a quantity that no source counts.
class Counters {
 public:
  static Counters Start(const CounterTarget& target);
  std::vector<CounterReading> Stop();

 private:
  struct Running {
    CounterReading reading;                 // so far
    std::unique_ptr<CounterSource> source;  // null: none counts this quantity
    int64_t start_ns = 0;
  };
  std::vector<Running> running_;
};

// Each quantity's first usable source here, without counting: `source`, or `unavailable` and `fix`.
// One list for `pinion doctor` and for the reports.
std::vector<CounterReading> ExamineCounters(const CounterTarget& target);

// Joules of the packages, by their power and the time; empty if it was not counted.
std::optional<double> JoulesOf(const std::vector<CounterReading>& readings);

// The readings as metrics of a candidate, those that were counted: memory_bytes_per_s,
// memory_local_bytes_per_s, memory_remote_bytes_per_s, frequency_hz, package_watts, wall_watts.
std::vector<CounterValue> FiguresOf(const std::vector<CounterReading>& readings);

// {"core":{"source":"perf_event","instructions":n,...},"energy":"not available, because ..."}
Json ToJson(const std::vector<CounterReading>& readings);
// The same as text, a line per quantity.
std::string Render(const std::vector<CounterReading>& readings);

}  // namespace pinion::harness
