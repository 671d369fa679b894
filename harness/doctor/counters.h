#pragma once

#include <vector>

#include "harness/doctor/checks.h"

namespace pinion::harness {

// Which counters of the hardware can be read here, from the plainest up: perf_event (cycles,
// instructions), rapl (energy), resctrl (memory traffic per group), pcm (Intel's tools). Each is
// there, or not available with the reason and, where there is one, the command that enables it.
std::vector<Check> ExamineCounters(const DoctorTarget& target);

}  // namespace pinion::harness
