#pragma once

#include <string>

#include "engine/serve/http.h"
#include "engine/serve/schema.h"

namespace pinion {

// An answer for a request that gets no further: the sentence in the schema's form.
HttpRefusal MakeRefusal(int status, std::string message, HttpFields headers = {});
// With Retry-After if the error passes.
HttpRefusal MakeRefusal(const ApiError& error);

}  // namespace pinion
