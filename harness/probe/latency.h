#pragma once

#include <cstddef>

#include "engine/base/result.h"
#include "harness/probe/rate.h"

namespace pinion::harness {

// Nanoseconds per load of a chain of pointers, one to each cache line of `bytes`, in an order that
// no prefetcher follows: the latency of the memory level that holds that many bytes, including
// address translation. Uses the largest power of two up to `bytes`, and only the first thread of
// the team.
Result<double> LatencyNs(Team& team, SamplingPlan sampling, size_t bytes);

}  // namespace pinion::harness
