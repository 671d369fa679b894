#pragma once

// The cost of synchronising threads. Every figure is the best of several samples, except wake-ups.

#include "harness/probe/rate.h"

namespace pinion::harness {

// One round of the team's spin barrier.
double BarrierNs(Team& team, SamplingPlan sampling);
// An empty parallel region, until the caller continues.
double ForkJoinNs(Team& team, SamplingPlan sampling);
// From one thread's notification to another's return from sleep in the kernel (futex): the median.
// Requires a team of two.
double WakeNs(Team& team);
// The time of a cache line from one core to the other: half of a round trip. Requires a team of
// two.
double OneWayNs(Team& team, SamplingPlan sampling);

}  // namespace pinion::harness
