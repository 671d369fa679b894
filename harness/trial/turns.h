#pragma once

#include <array>
#include <cstdint>

#include "engine/base/clock.h"
#include "harness/trial/measurement.h"
#include "harness/trial/trial.h"

namespace pinion::harness {

// Warms both targets up, waits until neither computes, then loads them in turns, wave by wave: A B
// A B ..., so that whichever computes has always waited for a wave. Both sides of a wave send the
// same prompts. A target that is null, or fails, takes no further part; `start_ns` is when the
// trial's process began.
PairResult MeasureInTurns(const std::array<LoadTarget*, 2>& targets, const PairRequest& request,
                          int64_t start_ns, const Clock& clock = kMachineClock);

// One result from those of all waves: the means of their samples and quantiles, all of their
// requests and levels of searches, and the suspicions and cuts of any of them.
TrialResult Joined(std::vector<TrialResult> waves);

}  // namespace pinion::harness
