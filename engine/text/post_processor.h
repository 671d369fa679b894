#pragma once

#include <functional>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/text/tokenizer.h"

namespace pinion {

// Puts special tokens around one text or two, which become one. Types are 0 in the first text and 1
// in the second one before it. An error if they would grow beyond measure (Growth). Immutable;
// thread-safe.
using PostProcessor = std::function<Status(std::vector<Encoding>&)>;

// From tokenizer.json's "post_processor". Errors name the unknown or malformed part.
Result<PostProcessor> MakePostProcessor(const Json& component);

// The output of the processor (empty: none) for the texts, joined in their order if it leaves them
// apart.
Result<Encoding> PostProcess(const PostProcessor& processor, std::vector<Encoding> texts);

}  // namespace pinion
