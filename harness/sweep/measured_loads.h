#pragma once

#include <vector>

#include "harness/results/results.h"
#include "harness/store/store.h"

namespace pinion::harness {

// How the trials that succeeded were measured.
MeasuredLoads MeasuredLoadsOf(const std::vector<TrialRow>& trials);

}  // namespace pinion::harness
