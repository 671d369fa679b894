#pragma once

#include <time.h>

#include <cstdint>

namespace pinion {

// Nanoseconds of CLOCK_MONOTONIC: the one clock that every measured time comes from, comparable
// between processes of one machine.
inline int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}
inline double SecondsSince(int64_t start_ns) {
  return static_cast<double>(NowNs() - start_ns) * 1e-9;
}

// The clock of a measurement: the machine's, or a test's, which advances in known steps. Thread
// rule: any thread.
class Clock {
 public:
  virtual int64_t NowNs() const = 0;
  virtual void SleepNs(int64_t ns) const = 0;  // may return early; at once for ns <= 0

 protected:
  ~Clock() = default;
};

class MachineClock final : public Clock {
 public:
  int64_t NowNs() const override { return pinion::NowNs(); }
  void SleepNs(int64_t ns) const override {
    if (ns <= 0) return;
    const timespec pause = {ns / 1'000'000'000, ns % 1'000'000'000};
    nanosleep(&pause, nullptr);
  }
};
inline constexpr MachineClock kMachineClock{};

}  // namespace pinion
