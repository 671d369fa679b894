#pragma once

#include <string>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/host/machine.h"
#include "engine/run/options.h"
#include "harness/cli/sweep_flags.h"
#include "harness/space/definition.h"
#include "harness/space/expand.h"

namespace pinion::harness {

// Predictions for every candidate from the ceilings of --probe; null without --probe.
Result<Json> PredictionsFor(const SweepFlags& flags, const Definition& definition,
                            const EngineOptions& base, const Host& host);

// An error if `path` was probed on another machine, whose ceilings could prune the best candidate
// here.
Status CheckProbed(const std::string& path, const Machine& machine);

// `--machine FILE --probe FILE`: prints the plan for another machine, and runs nothing.
Status PlanElsewhere(const SweepFlags& flags);

}  // namespace pinion::harness
