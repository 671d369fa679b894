#pragma once

#include <string>

#include "engine/base/result.h"
#include "harness/report/results.h"

namespace pinion::harness {

// The contents of FOLDER/results.db, with estimates, floors and verdicts computed anew. Works
// on a sweep that is still running (another process may be writing).
Result<Results> LoadResults(const std::string& folder);

}  // namespace pinion::harness
