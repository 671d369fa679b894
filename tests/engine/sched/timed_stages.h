#pragma once

// Stages of a pipeline that take as long as a test says, on a clock that moves when a step ends.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <vector>

#include "timed_bench.h"

namespace pinion {

class TimedStages {
 public:
  TimedStages(size_t stages, const HandClock& clock) : clock_(clock), free_ns_(stages) {}

  // A step that each stage computes in so much time, in parts of equal length. The next stage may
  // take a part as soon as it is there.
  void Begin(double stage_s, size_t parts = 1) {
    const auto part_ns =
        static_cast<int64_t>(std::llround(stage_s * 1e9 / static_cast<double>(parts)));
    int64_t end_ns = 0;
    for (size_t part = 0; part < parts; ++part) {
      end_ns = clock_.now_ns;
      for (int64_t& free_ns : free_ns_) end_ns = free_ns = std::max(end_ns, free_ns) + part_ns;
    }
    ends_ns_.push_back(end_ns);
  }
  // Waits for the oldest step in flight.
  void Finish() {
    clock_.now_ns = std::max(clock_.now_ns, ends_ns_.front());
    ends_ns_.pop_front();
  }

 private:
  const HandClock& clock_;
  std::vector<int64_t> free_ns_;  // when each stage has computed what it was given
  std::deque<int64_t> ends_ns_;
};

}  // namespace pinion
