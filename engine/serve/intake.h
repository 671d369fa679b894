#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/serve/fill_in.h"
#include "engine/serve/memory_budget.h"
#include "engine/serve/schema.h"
#include "engine/serve/served_model.h"
#include "engine/serve/thought_marks.h"
#include "engine/text/chat.h"
#include "engine/text/tokenizer.h"

namespace pinion {

// Turns a client's request into prompts for the engine: renders conversations, tokenizes, and
// refuses requests that this model cannot serve. Immutable; any thread.
class Intake {
 public:
  using RenderChat = std::function<Result<std::string>(const ChatRequest&)>;

  // The model and the tokenizer outlive the object.
  Intake(const ServedModel& model, const Tokenizer& tokenizer);

  // One list of token ids per prompt, each short enough for sequences of `max_model_len` tokens.
  // Sets the request's rules of output, and max_tokens if the client left it out; takes its
  // conversation. The memory that this takes meanwhile comes out of `memory`.
  ApiResult<std::vector<std::vector<int32_t>>> Prepare(GenerationRequest& request,
                                                       size_t max_model_len,
                                                       const RenderChat& render,
                                                       MemoryShare& memory) const;
  ApiResult<std::vector<int32_t>> Tokenize(TokenizeRequest request, const RenderChat& render,
                                           MemoryShare& memory) const;

  // A conversation as the model's template writes it.
  ApiResult<std::string> ApplyTemplate(TokenizeRequest request, const RenderChat& render) const;
  ApiResult<std::string> Detokenize(const DetokenizeRequest& request) const;

 private:
  void SetOutput(std::string_view prompt, GenerationRequest& request) const;
  bool MayReason(std::string_view prompt, const ThoughtFormat* format) const;
  ApiResult<void> BoundThought(const std::vector<std::vector<int32_t>>& prompts,
                               GenerationRequest& request) const;
  ApiResult<void> CheckIds(const std::vector<int32_t>& ids, const char* field) const;
  ApiResult<void> FillGaps(GenerationRequest& request) const;
  ApiResult<void> CheckModel(const std::string& name) const;
  ApiResult<void> CheckTokenIds(const SamplingParams& params) const;
  ApiResult<void> EncodeBadWords(GenerationRequest& request, MemoryShare& memory) const;
  ApiResult<std::vector<int32_t>> EncodePrompt(const TextOrTokens& prompt, bool add_special_tokens,
                                               size_t max_model_len, MemoryShare& memory) const;
  ApiResult<std::vector<int32_t>> EncodeText(const std::string& text, bool add_special_tokens,
                                             MemoryShare& memory) const;
  ApiResult<std::string> Render(Conversation conversation, const RenderChat& render) const;

  const ServedModel& model_;
  const Tokenizer& tokenizer_;
  size_t longest_token_bytes_;
  std::optional<FillInTokens> fill_in_;
  std::optional<ThoughtMarks> thought_;
};

}  // namespace pinion
