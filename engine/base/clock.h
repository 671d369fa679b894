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

}  // namespace pinion
