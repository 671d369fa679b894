#pragma once

#include <cstdint>

#include "harness/load/generator.h"
#include "harness/stats/serving.h"

namespace pinion::harness {

// The part of a closed loop that has neither ramp nor drain. Times of CLOCK_MONOTONIC.
struct SteadyWindow {
  int64_t start_ns = 0, end_ns = 0;
  // False: too few requests for such a part, so it is all of the load.
  bool is_steady = false;
};

// From the end of the `clients`-th request, later if the token rate still has a slope, until the
// first end after which no request was sent. Every client is busy all the while, and has had its
// first answer, whose prompt all others' competed with. It starts as many requests later, and
// again, while the slope of the token rate over it is significant (least squares over ten slices, 5
// %) and as many requests as there are clients would be left.
SteadyWindow SteadyWindowOf(const ServerLoadResult& load, int clients);

// Requests of a loop with which it has such a window, of twice as many requests as clients.
constexpr int RequestsForSteadyWindow(int clients) { return 4 * clients; }
// Of so many requests, those that end within it.
constexpr int RequestsInSteadyWindow(int requests, int clients) {
  return requests - 2 * clients + 1;
}

// The complete requests that ended within the window, and the tokens that arrived within it.
ServingSummary SummariseWindow(const ServerLoadResult& load, const SteadyWindow& window,
                               const Slo& slo);

}  // namespace pinion::harness
