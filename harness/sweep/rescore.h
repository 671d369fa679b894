#pragma once

#include <vector>

#include "engine/base/result.h"
#include "harness/space/definition.h"
#include "harness/store/store.h"

namespace pinion::harness {

// Judges stored trials by another target than that of their sweep: sample "goodput" of every closed
// loop, the levels of the search (info "slo") and the load that they tell (sample "slo_load") are
// counted again, from every request. A level at which requests were cut off before the new limits
// decide is left out; if those that remain all pass, or all fail, there may be no load. Errors are
// the store's.
Status Rescore(Store& store, const SloTarget& target, std::vector<TrialRow>& trials);

}  // namespace pinion::harness
