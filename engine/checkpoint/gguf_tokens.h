#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "engine/base/json.h"
#include "engine/base/result.h"

namespace pinion {

// The vocabulary of a GGUF file: for each id, its text and its kind. It points into the metadata.
struct GgufTokens {
  // Kinds, as files number them.
  static constexpr int64_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5,
                           kByte = 6;

  const Json::Array* texts = nullptr;
  const Json::Array* kinds = nullptr;

  size_t size() const { return texts->size(); }
  const std::string& text(size_t id) const { return (*texts)[id].string(); }
  int64_t kind(size_t id) const { return (*kinds)[id].integer(); }
};

Result<GgufTokens> ReadGgufTokens(const Json& metadata);

// An array of the tokenizer's that must have `size` entries, one a token (0: any number).
Result<const Json::Array*> RequireArray(const Json& metadata, const char* key, size_t size);

// The text of the token that `key` names; "" if it names none.
Result<std::string> TokenAt(const Json& metadata, const GgufTokens& tokens, const char* key);

// tokenizer.json's added_tokens: those that are found in a text as they stand.
Json AddedTokensOf(const GgufTokens& tokens);

// The ids that end an answer: those that the metadata names, then those of tokens that end one in
// every model whose vocabulary has them. generation_config.json lists them all (Gemma 3: <eos> and
// <end_of_turn>), but a file names a single one or two.
Json GgufEnds(const Json& metadata);

inline Json JsonOf(Json::Object items) { return Json(std::move(items)); }

}  // namespace pinion
