#pragma once

#include <cstddef>

#include "engine/base/json.h"
#include "engine/serve/schema.h"

namespace pinion {

// The last tokens that penalties see unless a body has `repeat_last_n`: llama-server's default.
inline constexpr size_t kLlamaPenaltyWindow = 64;

// The body of completions that is equivalent to a body of llama-server's /completion: its own names
// (`n_predict`, `repeat_penalty`, `n_probs`, `grammar`, `json_schema`, ...) become those of
// completions. Samplers that Pinion does not have are refused by name unless they are off. `body`:
// its fields have passed CheckFields.
ApiResult<TranslatedBody> CompletionBodyOfLlama(const Json& body);
// The same of /infill: `input_prefix`, `input_suffix`, `input_extra` and `prompt` are the text
// around the gap.
ApiResult<TranslatedBody> CompletionBodyOfInfill(const Json& body);

// Sets what completions have otherwise: no limit of tokens but the model's.
void FinishLlama(const ApiDefaults& defaults, GenerationRequest& request);

}  // namespace pinion
