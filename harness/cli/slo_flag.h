#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion::harness {

// {"ttft=500ms", "e2el=5s"} -> {"ttft":"500ms","e2el":"5s"}, as a definition's workload has it.
// Errors (kUsage) name --slo.
Result<Json> ReadSloFlag(const std::vector<std::string>& texts);

}  // namespace pinion::harness
