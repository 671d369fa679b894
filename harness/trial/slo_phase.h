#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "engine/base/result.h"
#include "harness/load/slo_search.h"
#include "harness/space/definition.h"
#include "harness/store/store.h"

namespace pinion::harness {

// A search gets as much of a trial's time as this many closed loops, and at most so many runs.
inline constexpr size_t kSloWeight = 3, kSloRuns = 6;

// The first load of a trial's search, if its target states none, after other loads that reached so
// many requests/s. One of few values, so that a candidate's trials search at the same loads.
double FirstLoad(const SloTarget& target, double requests_per_s);

// Requests of a run at a load: a single miss must not fail it; and at a rate it must last long
// enough for the queue of a load above the capacity to grow beyond the limits, which a short burst
// is not.
int RequestsToJudge(const SloTarget& target, double load);

// Searches from `start` for the highest load that meets the SLO, coarsely: the other trials of the
// sweep search too. `run` sends a load once; its error ends the search with the levels so far.
SloLevels SearchInTrial(const SloTarget& target, double start,
                        const std::function<Result<LevelRun>(double load)>& run);

// A search's findings, in place of earlier ones: its levels with requests, and the sample
// "slo_load" (LoadAttaining) if they enclose it: if all that were tried pass, the load would be a
// lower bound, which is not a result. Otherwise info.cut says so ("search of the SLO's load cut").
void DescribeSearch(const SloTarget& target, const SloLevels& levels, TrialInfo& info,
                    std::vector<MetricValue>& samples);

}  // namespace pinion::harness
