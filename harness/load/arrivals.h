#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/base/result.h"

namespace pinion::harness {

// A rate that changes over the run, from the first request to the last.
struct Ramp {
  bool exponential = false;  // else linear
  double from = 0, to = 0;   // requests/s
  bool operator==(const Ramp&) const = default;
};

// The arrival times of an open loop's requests; a closed loop has none.
struct ArrivalPlan {
  std::optional<double> rate;  // requests/s, any real number above 0: 0.05 is one in 20 s
  // Shape of the gamma distribution of the gaps: 1 is a Poisson process, below 1 burstier, above 1
  // more even; infinity sends at equal gaps.
  double burstiness = 1;
  std::optional<Ramp> ramp;  // instead of `rate`

  bool any() const { return rate || ramp; }
  bool operator==(const ArrivalPlan&) const = default;
};
Status Validate(const ArrivalPlan& plan);  // kUsage

// `count` times of a plan that has any, in seconds, ascending, the first one 0. The gap before
// request i is drawn from Gamma(burstiness, 1 / (rate(i) * burstiness)), whose mean is 1 / rate(i);
// on a ramp rate(i) goes from `from` to `to` by i, linearly or by equal factors. The same seed
// gives the same times at another rate, stretched. Formula: as `vllm bench serve`.
std::vector<double> ArrivalSeconds(const ArrivalPlan& plan, size_t count, uint64_t seed);

}  // namespace pinion::harness
