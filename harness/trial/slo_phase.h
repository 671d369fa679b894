#pragma once

#include <cstdint>
#include <functional>

#include "harness/load/slo_search.h"
#include "harness/space/definition.h"
#include "harness/stats/serving.h"
#include "harness/trial/trial.h"

namespace pinion::harness {

// A search gets as much of a trial's time as this many closed loops.
inline constexpr size_t kSloWeight = 3;

// Finds the highest load that meets the SLO, by a few runs within one trial; the findings of a
// sweep's trials are pooled there. `run` sends a load once; its error ends the search with the
// levels so far. Adds to `result`: info "slo" {"unit","levels":[{"load","good","total"}]} and, if a
// load passed, the sample "slo_load".
void SearchInTrial(const SloTarget& target,
                   const std::function<Result<LevelRun>(double load, size_t runs_left)>& run,
                   TrialResult& result);

// Counts one request into `level`: complete, and good if it meets the limits; or cut off at
// `cut_ns`, when it counts only if it had missed them by then. INT64_MAX: it failed, which counts.
void Judge(const RequestTrace& times, bool complete, int64_t cut_ns, const Slo& limits,
           LevelRun& level);

}  // namespace pinion::harness
