#pragma once

#include <functional>
#include <string>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion {

// Rewrites text before it is split into words: valid UTF-8, before and after. An error if the text
// would grow beyond measure (Growth) or an expression gives up on it. Immutable; thread-safe.
using Normalizer = std::function<Status(std::string&)>;

// From tokenizer.json's "normalizer". Errors name the unknown or malformed part.
Result<Normalizer> MakeNormalizer(const Json& component);

}  // namespace pinion
