#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/serve/intake.h"
#include "engine/serve/schema.h"
#include "engine/text/tokenizer.h"

namespace pinion {

// The texts of a request for vectors or scores as the model reads them. Pairs, if it scores pairs;
// of an embedder the queries, then the documents, whose vectors are compared. Texts that are too
// long for the model are refused, or cut if the request says so. The memory that this takes comes
// out of `memory`. Immutable; any thread.
class PoolingIntake {
 public:
  // Both outlive the object.
  PoolingIntake(const ServedModel& model, const Tokenizer& tokenizer)
      : model_(model), tokenizer_(tokenizer) {}

  ApiResult<std::vector<Encoding>> Prepare(const GenerationRequest& request, size_t max_model_len,
                                           MemoryShare& memory) const;

 private:
  ApiResult<std::string> PromptOf(const PoolingWishes& wishes) const;
  ApiResult<void> CheckModel(const GenerationRequest& request, size_t max_model_len) const;
  ApiResult<Encoding> EncodeInput(const GenerationRequest& request, const TextOrTokens& input,
                                  size_t most, MemoryShare& memory) const;
  ApiResult<Encoding> EncodeOne(std::string_view text, size_t most, const char* field,
                                MemoryShare& memory) const;
  ApiResult<std::string> FirstTokens(const std::string& text, size_t most, const char* field,
                                     MemoryShare& memory) const;
  ApiResult<std::vector<Encoding>> EncodeTexts(const PoolingWishes& wishes, size_t most,
                                               MemoryShare& memory) const;
  ApiResult<Encoding> EncodeTwo(const PoolingWishes& wishes, const std::string& query,
                                const std::string& document, size_t most,
                                MemoryShare& memory) const;

  const ServedModel& model_;
  const Tokenizer& tokenizer_;
};

}  // namespace pinion
