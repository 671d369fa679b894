#pragma once

#include <sys/types.h>

#include <cstdint>

#include "engine/base/descriptor.h"
#include "harness/counters/counters.h"

namespace pinion::harness {

// One counter of perf_event_open(2), counting from its construction. Only perf_counter.cc uses that
// system call.
class PerfCounter {
 public:
  struct Event {
    uint32_t type = 0;  // PERF_TYPE_*
    uint64_t config = 0;
    uint64_t config1 = 0;  // which responses a core's offcore event counts
  };
  // Of a thread and those that it starts (`cpu` -1), or of a CPU and all that runs there (`thread`
  // -1). The kernel's work for it counts if that is allowed.
  static tl::expected<PerfCounter, CounterGap> Open(const Event& event, pid_t thread, int cpu);

  // The count so far; extrapolated if it shared the hardware with other counters part of the time.
  tl::expected<double, CounterGap> Read() const;
  bool user_only() const { return user_only_; }  // the kernel's work is not allowed to count

 private:
  PerfCounter(Descriptor fd, bool user_only) : fd_(std::move(fd)), user_only_(user_only) {}
  Descriptor fd_;
  bool user_only_ = false;
};

}  // namespace pinion::harness
