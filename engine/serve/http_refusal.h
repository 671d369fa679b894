#pragma once

#include <string>

#include "engine/serve/http.h"

namespace pinion {

// An answer for a request that gets no further: the sentence in the schema's form.
HttpRefusal MakeRefusal(int status, std::string message, HttpFields headers = {});

}  // namespace pinion
