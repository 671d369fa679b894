#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/space/definition.h"
#include "harness/store/store.h"

namespace pinion::harness {

// Why a candidate is disqualified: the constraint that one of its trials broke,
// with the number; nullopt if none did. (Expand checks cores before anything runs.)
std::optional<std::string> WhyDisqualified(const Constraints& constraints,
                                           const std::vector<TrialRow>& trials, int candidate);

}  // namespace pinion::harness
