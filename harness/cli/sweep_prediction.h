#pragma once

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/run/options.h"
#include "harness/cli/sweep_flags.h"
#include "harness/space/definition.h"
#include "harness/space/expand.h"

namespace pinion::harness {

// The plan of a sweep (MakeSweepPlan) with predictions from the ceilings of --probe; null without
// --probe.
Result<Json> PredictionsFor(const SweepFlags& flags, const Definition& definition,
                            const EngineOptions& base, const Host& host);

// `--plan` or `--machine`: prints the plan for this or another machine, and runs nothing.
Status PrintPlan(const SweepFlags& flags);

// Refuses ceilings that are stated for a sweep, which must not drop candidates by them.
Status CheckStated(const SweepFlags& flags);

}  // namespace pinion::harness
