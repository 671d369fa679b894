#pragma once

#include <optional>
#include <vector>

#include "harness/results/results.h"
#include "harness/space/definition.h"
#include "harness/store/store.h"

namespace pinion::harness {

// The highest load of a candidate that meets the SLO and the lowest that does not, with intervals:
// its trials' findings (info "slo"), pooled over all rounds by one monotone fit. Unset if
// nothing was searched.
std::optional<SloFinding> PooledBoundary(const std::vector<TrialRow>& trials, int candidate,
                                         const SloTarget& target);

}  // namespace pinion::harness
