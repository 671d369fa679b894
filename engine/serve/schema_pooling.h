#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/run/task.h"
#include "engine/serve/options.h"
#include "engine/serve/schema.h"

namespace pinion {

// Reads the bodies of the endpoints whose answers are vectors or scores: sets api, prompts or
// pairs, wishes, priority and the other fields of a request that have a meaning there. `body`: its
// fields have passed CheckFields.
ApiResult<GenerationRequest> ReadPoolingRequest(Api api, const Json& body);

}  // namespace pinion
