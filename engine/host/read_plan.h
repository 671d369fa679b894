#pragma once

#include "engine/base/json.h"
#include "engine/host/binding.h"

namespace pinion {

// The plan that ToJson wrote. Members that are missing or of another type are left empty: the JSON
// may come from another version, or be a part of a plan.
Plan ReadPlan(const Json& told);

}  // namespace pinion
