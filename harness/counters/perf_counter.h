#pragma once

#include <sys/types.h>

#include <cstdint>

#include "engine/base/result.h"

namespace pinion::harness {

// One counter of perf_event_open(2), counting from its construction. Only perf_counter.cc uses that
// system call.
class PerfCounter {
 public:
  struct Event {
    uint32_t type = 0;  // PERF_TYPE_*
    uint64_t config = 0;
  };
  // Of a thread and those that it starts (`cpu` -1), or of a CPU and all that runs there (`thread`
  // -1). The kernel's work for it counts if that is allowed. Errors (kUnsupported): a
  // reason with the way out.
  static Result<PerfCounter> Open(const Event& event, pid_t thread, int cpu);
  PerfCounter(PerfCounter&& other) noexcept;
  PerfCounter& operator=(PerfCounter&&) = delete;
  ~PerfCounter();

  // The count so far; extrapolated if it shared the hardware with other counters part of the time.
  Result<double> Read() const;

 private:
  explicit PerfCounter(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace pinion::harness
