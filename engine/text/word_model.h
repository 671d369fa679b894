#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/result.h"
#include "engine/text/vocabulary.h"

namespace pinion {

// Turns one word (a piece of the pre-tokenizer) into tokens. Immutable; thread-safe.
class WordModel {
 public:
  virtual ~WordModel() = default;

  // Appends the word's ids. An error if the model has no way to write it.
  virtual Status Encode(std::string_view word, std::vector<int32_t>& ids) const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
};

// From tokenizer.json's "model". Errors name the unknown kind or the malformed part.
Result<std::unique_ptr<const WordModel>> MakeWordModel(const Json& model);

// The "vocab" of a model whose tokens are the keys of an object, and their ids the values.
Result<Vocabulary> ReadVocabulary(const Json& model);

// The ids of <0x00> ... <0xFF>; -1: not in the vocabulary.
std::vector<int32_t> ByteTokens(const Vocabulary& vocabulary);

}  // namespace pinion
