#pragma once

#include <string>
#include <vector>

#include "harness/results/results.h"
#include "harness/store/store.h"
#include "harness/sweep/state.h"

namespace pinion::harness {

// Warnings to readers of a sweep's results: disturbed, failed and cut trials, a smaller batch, too
// few rounds. A sentence each. `results` has its definition, verdicts, rounds and candidates.
std::vector<std::string> WarningsOf(const SweepMeta& meta, const std::vector<TrialRow>& trials,
                                    const Results& results);

}  // namespace pinion::harness
