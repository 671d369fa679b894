#include "engine/serve/intake.h"

#include <algorithm>
#include <utility>

#include "engine/base/strings.h"
#include "engine/base/trace.h"

namespace pinion {
namespace {

size_t LongestToken(const Tokenizer& tokenizer) {
  size_t longest = 1;
  for (size_t id = 0; id < tokenizer.vocabulary_size(); ++id)
    longest = std::max(longest, tokenizer.TokenText(static_cast<int32_t>(id)).size());
  return longest;
}

// Sets max_tokens if the client left it out, and refuses requests beyond the model's length.
ApiResult<void> FitLengths(const std::vector<std::vector<int32_t>>& prompts, size_t max_model_len,
                           GenerationRequest& request) {
  size_t longest = 0;
  for (const auto& prompt : prompts) {
    if (prompt.empty()) return Unexpected(ApiError{400, "'prompt' has no tokens", "prompt", ""});
    longest = std::max(longest, prompt.size());
  }
  SamplingParams& params = request.params;
  const size_t wanted = request.max_tokens_given ? static_cast<size_t>(params.max_tokens) : 1;
  if (longest + wanted > max_model_len)
    return Unexpected(ApiError{400,
                               StrCat("the prompt has ", longest, " tokens and ", wanted,
                                      " more were requested, which together exceed the model's ",
                                      max_model_len, "; reduce either"),
                               request.max_tokens_given ? "max_tokens" : "prompt",
                               "context_length_exceeded"});
  params.max_tokens =
      static_cast<int>(std::min(static_cast<size_t>(params.max_tokens), max_model_len - longest));
  if (params.min_tokens > params.max_tokens)
    return Unexpected(ApiError{400,
                               StrCat("'min_tokens' is ", params.min_tokens, ", want at most ",
                                      params.max_tokens, ", the most that fits this request"),
                               "min_tokens", ""});
  return {};
}

}  // namespace

Intake::Intake(const ServedModel& model, const Tokenizer& tokenizer, RenderChat render)
    : model_(model),
      tokenizer_(tokenizer),
      render_(std::move(render)),
      longest_token_bytes_(LongestToken(tokenizer)) {}

ApiResult<std::vector<std::vector<int32_t>>> Intake::Prepare(GenerationRequest& request,
                                                             size_t max_model_len) const {
  PINION_TRY(CheckModel(request.model));
  PINION_TRY(CheckTokenIds(request.params));
  PINION_ASSIGN(auto prompts, Encode(request, max_model_len));
  PINION_TRY(FitLengths(prompts, max_model_len, request));
  return prompts;
}

ApiResult<std::vector<int32_t>> Intake::Tokenize(const TokenizeRequest& request) const {
  PINION_TRY(CheckModel(request.model));
  std::string text;
  if (request.prompt) {
    text = *request.prompt;
  } else {
    PINION_ASSIGN(text, Render(request.conversation));
  }
  auto ids = tokenizer_.Encode(text, request.add_special_tokens);
  if (!ids) return Unexpected(ApiError{400, ids.error().message, "prompt", ""});
  return std::move(*ids);
}

ApiResult<void> Intake::CheckModel(const std::string& name) const {
  if (name.empty() || name == model_.name) return {};
  return Unexpected(ApiError{
      404, StrCat("the model '", name, "' does not exist; this server has '", model_.name, "'"),
      "model", "model_not_found"});
}

ApiResult<std::string> Intake::Render(const Conversation& conversation) const {
  if (!tokenizer_.chat_template())
    return Unexpected(ApiError{400,
                               "the model has no chat template; use /v1/completions, or put a "
                               "chat_template.jinja into its folder",
                               "messages", ""});
  Json kwargs = Json::MakeObject();
  for (const auto& [name, token] : tokenizer_.special_tokens()) kwargs.Set(name, token);
  kwargs.Set("add_generation_prompt", conversation.add_generation_prompt);
  if (conversation.template_kwargs.is_object())
    for (const auto& [key, value] : conversation.template_kwargs.object()) kwargs.Set(key, value);
  auto rendered = render_({*tokenizer_.chat_template(), conversation.messages, conversation.tools,
                           std::move(kwargs), conversation.continue_final_message});
  if (!rendered)
    return Unexpected(
        ApiError{400, StrCat("the chat template refused the messages: ", rendered.error().message),
                 "messages", ""});
  return std::move(*rendered);
}

ApiResult<std::vector<int32_t>> Intake::EncodePrompt(const Prompt& prompt, bool add_special_tokens,
                                                     size_t max_model_len) const {
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) {
    for (const int32_t id : *ids)
      if (static_cast<size_t>(id) >= model_.vocabulary)
        return Unexpected(ApiError{
            400, StrCat("'prompt' holds token ", id, ", want ids below ", model_.vocabulary),
            "prompt", ""});
    return *ids;
  }
  const auto& text = std::get<std::string>(prompt);
  // Tokenizing megabytes that cannot fit anyway would block this thread, and so every client.
  if (text.size() / longest_token_bytes_ > max_model_len)
    return Unexpected(ApiError{400,
                               StrCat("the prompt has ", text.size(), " bytes, more than ",
                                      max_model_len, " tokens (the model's length) can hold"),
                               "prompt", "context_length_exceeded"});
  auto ids = tokenizer_.Encode(text, add_special_tokens);
  if (!ids) return Unexpected(ApiError{400, ids.error().message, "prompt", ""});
  return std::move(*ids);
}

ApiResult<std::vector<std::vector<int32_t>>> Intake::Encode(const GenerationRequest& request,
                                                            size_t max_model_len) const {
  const TraceSpan span("tokenise");
  std::vector<std::vector<int32_t>> all;
  if (request.chat) {
    PINION_ASSIGN(std::string text, Render(request.conversation));
    PINION_ASSIGN(all.emplace_back(), EncodePrompt(std::move(text), false, max_model_len));
  }
  for (const Prompt& prompt : request.prompts) {
    PINION_ASSIGN(all.emplace_back(),
                  EncodePrompt(prompt, request.add_special_tokens, max_model_len));
  }
  return all;
}

ApiResult<void> Intake::CheckTokenIds(const SamplingParams& params) const {
  const auto unknown = FindUnknownId(params, model_.vocabulary);
  if (!unknown) return {};
  return Unexpected(ApiError{400, Describe(*unknown, model_.vocabulary), unknown->field, ""});
}

}  // namespace pinion
