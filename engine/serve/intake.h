#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/serve/schema.h"
#include "engine/text/chat.h"
#include "engine/text/tokenizer.h"

namespace pinion {

// The facts about the model that the front end has before the engine is ready.
struct ServedModel {
  std::string name;  // what clients call it
  std::string root;  // what it was loaded from
  size_t vocabulary = 0;
  ApiDefaults defaults;
};

// Turns a client's request into prompts for the engine: renders conversations, tokenizes, and
// refuses requests that this model cannot serve. Thread rule: one thread.
class Intake {
 public:
  using RenderChat = std::function<Result<std::string>(const ChatRequest&)>;

  // The model and the tokenizer outlive the object.
  Intake(const ServedModel& model, const Tokenizer& tokenizer, RenderChat render);

  // One list of token ids per prompt, each short enough for sequences of `max_model_len` tokens.
  // Sets the request's max_tokens if the client left it out.
  ApiResult<std::vector<std::vector<int32_t>>> Prepare(GenerationRequest& request,
                                                       size_t max_model_len) const;
  ApiResult<std::vector<int32_t>> Tokenize(const TokenizeRequest& request) const;

 private:
  ApiResult<void> CheckModel(const std::string& name) const;
  ApiResult<void> CheckTokenIds(const SamplingParams& params) const;
  ApiResult<std::vector<std::vector<int32_t>>> Encode(const GenerationRequest& request,
                                                      size_t max_model_len) const;
  ApiResult<std::vector<int32_t>> EncodePrompt(const Prompt& prompt, bool add_special_tokens,
                                               size_t max_model_len) const;
  ApiResult<std::string> Render(const Conversation& conversation) const;

  const ServedModel& model_;
  const Tokenizer& tokenizer_;
  RenderChat render_;
  size_t longest_token_bytes_;
};

}  // namespace pinion
