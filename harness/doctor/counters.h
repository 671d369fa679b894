#pragma once

#include <vector>

#include "harness/doctor/checks.h"

namespace pinion::harness {

// Starts the name of every check of a counter: "counter_energy".
inline constexpr char kCounterPrefix[] = "counter_";

// One check per quantity of harness/counters: the source that would count it here, or why none can
// and, if there is one, the command that enables one. Starts no tool.
std::vector<Check> ExamineCounterChecks(const DoctorTarget& target);

}  // namespace pinion::harness
