#pragma once

#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "harness/space/definition.h"
#include "harness/space/expand.h"
#include "harness/sweep/machine_ceilings.h"

// A sweep before it is run: its candidates and their predictions.

namespace pinion::harness {

// The settings that vary, each with all of its values: the definition's axes, and the values of
// its candidates after the base's own.
Axes AxesTried(const Definition& definition, const EngineOptions& base);

// {"model","machine":{},"ceilings":{}|null,"axes":{key:[values]},"candidates":[{"name","settings",
//  "same_as"?,"threads"?,"prediction"?,"excluded"?}]}
// In the order in which they would be admitted: by the predicted rate, those that cannot run last;
// without ceilings (null) there are no predictions, and the order is the definition's. "excluded"
// is the reason. Errors: a model that cannot be read.
Result<Json> MakeSweepPlan(const Definition& definition, const EngineOptions& base,
                           const Host& host, const std::vector<Point>& points,
                           const MachineCeilings* ceilings);
// The same as text, with the reason for trying each setting.
std::string RenderSweepPlan(const Json& plan);

}  // namespace pinion::harness
