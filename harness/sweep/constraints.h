#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/space/definition.h"
#include "harness/store/store.h"

namespace pinion::harness {

// Why a candidate's trials keep it from being recommended: the constraint that one of them broke,
// with the number. nullopt: none did so far. (Cores are known before anything runs: Expand.)
std::optional<std::string> WhyDisqualified(const Constraints& constraints,
                                           const std::vector<TrialRow>& trials, int candidate);

}  // namespace pinion::harness
