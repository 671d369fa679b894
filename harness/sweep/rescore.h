#pragma once

#include <vector>

#include "engine/base/result.h"
#include "harness/stats/serving.h"
#include "harness/store/store.h"

namespace pinion::harness {

// Judges stored trials by other limits than those of their sweep: sample "goodput" of every closed
// loop and the levels of the search (info "slo") are counted again, from every request. Errors are
// the store's.
Status Rescore(Store& store, const Slo& limits, std::vector<TrialRow>& trials);

}  // namespace pinion::harness
