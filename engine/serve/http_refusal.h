#pragma once

#include <string>
#include <string_view>

#include "engine/serve/http.h"
#include "engine/serve/schema.h"

namespace pinion {

// The body of an error's answer: Anthropic's form below /v1/messages, elsewhere OpenAI's.
std::string ErrorBody(std::string_view path, const ApiError& error);

// An answer for a request that gets no further: the sentence in the schema's form.
HttpRefusal MakeRefusal(int status, std::string message, HttpFields headers = {});
// With Retry-After if the error passes.
HttpRefusal MakeRefusal(const ApiError& error);

// Refuses a request whose method its path does not take. `methods`: those that it takes, "GET,
// POST".
void RefuseMethod(HttpReply& reply, const HttpHead& head, std::string_view methods);

}  // namespace pinion
