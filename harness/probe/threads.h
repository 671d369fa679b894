#pragma once

// What threads cost each other. Every figure is the best of some samples, wake-ups aside.

#include "engine/base/result.h"
#include "harness/probe/rate.h"

namespace pinion::harness {

// One round of the team's spin barrier.
double BarrierNs(Team& team, Effort effort);
// An empty parallel region, until the caller goes on.
double ForkJoinNs(Team& team, Effort effort);
// From one thread's notification to another's return from sleep in the kernel (futex): the median.
// Requires a team of two.
double WakeNs(Team& team);
// How long a cache line takes from one core to the other: half of a round trip. A team of two.
double OneWayNs(Team& team, Effort effort);

}  // namespace pinion::harness
