#pragma once

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/checkpoint/gguf_tokens.h"

namespace pinion {

// tokenizer.json of BERT and its relatives (`tokenizer.ggml.model` is bert).
Result<Json> GgufWordPiece(const Json& metadata, const GgufTokens& tokens);

// tokenizer.json of XLM-RoBERTa and its relatives (`tokenizer.ggml.model` is t5).
Result<Json> GgufUnigram(const Json& metadata, const GgufTokens& tokens);

}  // namespace pinion
