#pragma once

#include <cstddef>

#include "engine/base/result.h"
#include "harness/probe/rate.h"

namespace pinion::harness {

// Nanoseconds per load of a chain of pointers, one to each cache line of `bytes`, in an order that
// no prefetcher follows: the latency of what holds that many bytes, with what finding the pages
// costs. Uses the largest power of two up to `bytes`, and the first thread of the team alone.
Result<double> LatencyNs(Team& team, Effort effort, size_t bytes);

}  // namespace pinion::harness
