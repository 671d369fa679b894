#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion {

// Puts special tokens around the ids of one text. An error if they would grow beyond measure
// (Growth). Immutable; thread-safe.
using PostProcessor = std::function<Status(std::vector<int32_t>&)>;

// From tokenizer.json's "post_processor". Errors name the unknown or malformed part.
Result<PostProcessor> MakePostProcessor(const Json& component);

}  // namespace pinion
