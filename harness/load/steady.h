#pragma once

#include <cstdint>

#include "harness/load/generator.h"
#include "harness/stats/load_level.h"
#include "harness/stats/serving.h"

namespace pinion::harness {

// The part of a load that has neither ramp nor drain. Times of CLOCK_MONOTONIC.
struct SteadyWindow {
  int64_t start_ns = 0, end_ns = 0;
  // False: too few requests for such a part, so it is all of the load.
  bool is_steady = false;
};

// Of a closed loop: from the end of the `clients`-th request, later if the token rate still has a
// slope, until the first end after which no request was sent. Every client is busy all the while,
// and has had its first answer, whose prompt all others' competed with. It starts as many requests
// later, and again, while the slope of the token rate over it is significant (least squares over
// ten slices, 5
// %) and as many requests as there are clients would be left.
//
// Of an open loop: from the time at which a tenth of the requests were due, later by a tenth, twice
// at most, while the token rate has a slope, until the last request was due.
SteadyWindow SteadyWindowOf(const ServerLoadResult& load, LoadLevel level);

// Of an open loop's requests, those that may be left out.
inline constexpr int kMostTenthsLeftOut = 3;

// Requests of a load with which it has such a window: of a closed loop one of twice as many
// requests as clients.
constexpr int RequestsForSteadyWindow(LoadLevel level) {
  return level.is_open() ? 20 : 4 * level.clients;
}
// The fewest requests to ask for so that so many count, unless a slope shortens a closed loop's
// window; 1 if RequestsForSteadyWindow are enough.
constexpr int LeastForSteady(LoadLevel level, int counted) {
  constexpr int kKeptTenths = 10 - kMostTenthsLeftOut;
  const int least = level.is_open() ? (10 * counted + kKeptTenths - 1) / kKeptTenths
                                    : counted + 2 * level.clients - 1;
  return least <= RequestsForSteadyWindow(level) ? 1 : least;
}

// The tokens that arrived within the window and, of a closed loop, the complete requests that ended
// within it. Of an open loop the requests that were due within it, with one that was cut off as if
// it had been answered then: an overloaded server must not look fast because its late answers are
// missing. A load taken whole that was cut off lasts until then, and the tokens that had come
// count.
ServingSummary SummariseWindow(const ServerLoadResult& load, const SteadyWindow& window,
                               const Slo& slo);

}  // namespace pinion::harness
