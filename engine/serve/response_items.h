#pragma once

#include "engine/base/json.h"
#include "engine/serve/schema.h"

namespace pinion {

// Sets the chat's `messages` from the `instructions` and the `input` of a body of Responses: a
// text, or items, of which a turn of the assistant may have several (reasoning, text, calls). An
// unfinished last message of the assistant is the beginning of the answer.
ApiResult<void> AddInput(const Json& body, Json& chat);

}  // namespace pinion
