#pragma once

#include <string>

#include "engine/base/json.h"
#include "engine/serve/schema.h"

namespace pinion {

// The settings in a request's body that every state of a Response repeats, as members of a JSON
// object without its braces: the client's value, or the API's default, in the form of OpenAI's
// schema, which wants some fields present though they are null. A value of another type than that
// schema's is a 400 that names it. `body`: its tools, format and tool_choice have been read.
ApiResult<std::string> ShownByResponse(const Json& body);

}  // namespace pinion
