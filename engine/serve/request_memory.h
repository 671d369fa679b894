#pragma once

#include <cstddef>
#include <string>

#include "engine/serve/memory_budget.h"
#include "engine/serve/schema.h"

namespace pinion {

// ApiError::code of requests that find no memory now, and their label in the metrics.
inline constexpr const char* kRequestMemory = "request_memory";

// The error for a client once `memory` could not grow by `more`, which `what` takes, as a sentence
// begins ("the tokens of a text of 5 bytes"). 413: more than one client may ever hold; 503, counted
// by the budget: it is not free now.
ApiError OutOfMemory(const MemoryShare& memory, size_t more, const std::string& what);

// Takes `more` of the memory that requests may use.
ApiResult<void> Reserve(MemoryShare& memory, size_t more, const std::string& what);

}  // namespace pinion
