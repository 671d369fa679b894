#pragma once

#include <functional>

#include "engine/base/result.h"
#include "harness/counters/conditions.h"
#include "harness/load/generator.h"
#include "harness/load/slo_report.h"
#include "harness/load/summary.h"

namespace pinion::harness {

// Checks the plan and how the server is asked, reads the plan's files (of which num_prompts then
// says how many conversations they have), asks the server for its model, unless one is named, and
// finds how it counts made-up text. kUsage: a bad value, or two that exclude each other.
Status PrepareLoad(LoadedServer& server, LoadPlan& plan, const LoadHooks& hooks);

// The machine's counters now. The load measures a server on this machine, so the processes that
// listen on its port count as own with their descendants; unknown if they cannot be told.
Conditions ConditionsUnderLoad(const ServerUrl& url);

// Sends a prepared load once and returns the report, with its requests judged by `slo`.
Result<LoadReport> SendLoad(const LoadedServer& server, const LoadPlan& plan, const Slo& slo,
                            const LoadHooks& hooks);

// Finds the highest concurrency (options.whole) or rate at which enough requests meet the SLO, by
// sending a prepared load repeatedly with different seeds. `told` is called after every run. Errors
// (kUsage): no SLO, a trace or a ramp, which have rates of their own.
Result<SloReport> FindLoadBoundary(
    const LoadedServer& server, LoadPlan plan, const Slo& slo, const SloSearchOptions& options,
    const LoadHooks& hooks, const std::function<void(double load, const LevelRun& run)>& told);

}  // namespace pinion::harness
