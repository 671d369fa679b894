#pragma once

#include <vector>

#include "harness/doctor/checks.h"

namespace pinion::harness {

// Checks which hardware counters can be read here, from the simplest up: perf_event (cycles,
// instructions), rapl (energy), resctrl (memory traffic per group), pcm (Intel's tools). Each is
// available, or not available with the reason and, if there is one, the command that enables it.
std::vector<Check> ExamineCounters(const DoctorTarget& target);

}  // namespace pinion::harness
