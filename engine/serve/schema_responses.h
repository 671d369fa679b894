#pragma once

#include <string>

#include "engine/base/json.h"
#include "engine/serve/schema.h"

namespace pinion {

// The body of chat completions that is equivalent to a body of OpenAI's Responses. Items of `input`
// become messages, `instructions` the first of them, `text.format` the format of the answer; tools
// and their choice get the form of chats. Fields that both APIs have, and extensions such as
// `min_p` and `stop`, go on as they are. Anything without a counterpart (images, tools of OpenAI's
// servers) is a 400 that names it. `body`: its fields have passed CheckFields.
ApiResult<TranslatedBody> ChatBodyOfResponses(const Json& body);

// Names of fields in errors of the translated request become those that its client sent.
void NameAsResponses(GenerationRequest& request);

}  // namespace pinion
