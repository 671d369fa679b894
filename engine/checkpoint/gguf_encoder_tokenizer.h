#pragma once

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/checkpoint/gguf_tokens.h"

namespace pinion {

// tokenizer.json of BERT and its relatives (`tokenizer.ggml.model` is bert).
Result<Json> GgufWordPiece(const Json& metadata, const GgufTokens& tokens);

// tokenizer.json of XLM-RoBERTa and its relatives (`tokenizer.ggml.model` is t5).
Result<Json> GgufUnigram(const Json& metadata, const GgufTokens& tokens);

// The marks around a text of an encoder, and those that join a pair of texts.
struct GgufMarks {
  const char *first, *last;  // if the file names no ids for them
  int between;               // how many `last` stand between the texts of a pair
};

// tokenizer.json's post_processor of an encoder whose tokens are byte-level.
Result<Json> GgufMarked(const Json& metadata, const GgufTokens& tokens, const GgufMarks& marks);

}  // namespace pinion
