#pragma once

#include <functional>
#include <stop_token>
#include <thread>

#include "harness/counters/counters.h"

namespace pinion::harness {

// The mean of a quantity that can only be read at a moment: a thread reads it at once and then
// every so many seconds, until Stop.
class Sampler {
 public:
  using Read = std::function<tl::expected<double, CounterGap>()>;
  Sampler(Read read, double every_s);
  // The mean of the readings, or the gap of the last one if there was none.
  tl::expected<double, CounterGap> Stop();

 private:
  void Run(const std::stop_token& stop);

  const Read read_;
  const double every_s_;
  double sum_ = 0;
  size_t count_ = 0;
  CounterGap last_gap_{"it was not read"};
  std::jthread thread_;  // last: it uses the others
};

}  // namespace pinion::harness
