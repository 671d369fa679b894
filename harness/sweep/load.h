#pragma once

#include <optional>
#include <string>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "harness/results/results.h"

namespace pinion::harness {

// The contents of FOLDER/results.db, with estimates, floors and verdicts computed anew. Works
// on a sweep that is still running (another process may be writing). With `slo` (as a definition's
// workload has it) requests are judged by its limits instead of the sweep's; kUsage if they are
// none.
Result<Results> LoadResults(const std::string& folder, const std::optional<Json>& slo = {});

}  // namespace pinion::harness
