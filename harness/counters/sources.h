#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "harness/counters/counters.h"

namespace pinion::harness {

// The sources of counters.h, a file each.
std::unique_ptr<CounterSource> PerfSoftwareSource(const CounterTarget& target);
std::unique_ptr<CounterSource> PerfEventSource(const CounterTarget& target);
std::unique_ptr<CounterSource> UncoreSource(const CounterTarget& target);
std::unique_ptr<CounterSource> RaplSource(const CounterTarget& target);
std::unique_ptr<CounterSource> ResctrlSource(const CounterTarget& target);
std::unique_ptr<CounterSource> PcmSource(const CounterTarget& target);

// One counter of a memory controller, as sysfs describes it.
struct UncoreEvent {
  std::string name;       // "memory_read_bytes"
  uint32_t type = 0;      // of perf_event_attr
  uint64_t config = 0;    // of perf_event_attr
  double unit_bytes = 0;  // one count
  std::vector<int> cpus;  // that the kernel accepts for it, one per package
};
// Reads and writes of every controller below `root`. Error (kUnsupported): there is none, or its
// description is not understood.
Result<std::vector<UncoreEvent>> FindUncoreEvents(const std::string& root);

// Means over the samples of a `pcm-memory -csv`: "Read", "Write" and "Memory" of "System", found by
// the names in its two heading lines, in bytes per second. Errors (kCorrupt): no heading, a missing
// column, no sample.
struct PcmBandwidth {
  double read_bytes_per_s = 0, write_bytes_per_s = 0, bytes_per_s = 0;
  size_t samples = 0;
};
Result<PcmBandwidth> ParsePcmMemory(const std::string& csv);

}  // namespace pinion::harness
