#pragma once

#include "engine/base/json.h"
#include "engine/serve/schema.h"

namespace pinion {

// The body of chat completions that is equivalent to a body of Anthropic's Messages: turns of
// blocks become messages, `system` the first of them, `input_schema` a function's parameters.
// Fields that both APIs have, and extensions such as `min_p`, go on as they are. Anything without a
// counterpart (images, tools of other types) is a 400 that names it. `body`: its fields have passed
// CheckFields. `generates`: false for count_tokens, which has no `max_tokens` and gets a body of
// /tokenize.
ApiResult<Json> ChatBodyOfMessages(const Json& body, bool generates);

}  // namespace pinion
