#pragma once

#include "engine/base/clock.h"

namespace pinion::harness {

// Stands still but for what is slept: a test knows every time that is measured with it.
class FakeClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_; }
  void SleepNs(int64_t ns) const override { now_ns_ += ns > 0 ? ns : 0; }

 private:
  mutable int64_t now_ns_ = 1'000'000'000;
};

}  // namespace pinion::harness
