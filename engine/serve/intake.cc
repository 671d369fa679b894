#include "engine/serve/intake.h"

#include <algorithm>
#include <utility>

#include "engine/base/json_text.h"
#include "engine/base/strings.h"
#include "engine/base/trace.h"
#include "engine/serve/request_memory.h"

namespace pinion {
namespace {

// The memory of tokenization for each byte of a text: pieces of one byte, 40 bytes each, in two
// lists of which one is being enlarged, and the spans that they were cut at.
constexpr size_t kBytesPerByte = 160;

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
  const size_t wanted = request.prompt_only        ? 0
                        : request.max_tokens_given ? static_cast<size_t>(params.max_tokens)
                                                   : 1;
  if (longest + wanted > max_model_len)
    return Unexpected(ApiError{400,
                               StrCat("the prompt has ", longest, " tokens and ", wanted,
                                      " more were requested, which together exceed the model's ",
                                      max_model_len, "; reduce either"),
                               request.max_tokens_given ? request.max_tokens_name : "prompt",
                               "context_length_exceeded"});
  if (request.prompt_only) return {};
  params.max_tokens =
      static_cast<int>(std::min(static_cast<size_t>(params.max_tokens), max_model_len - longest));
  if (params.min_tokens > params.max_tokens)
    return Unexpected(ApiError{400,
                               StrCat("'min_tokens' is ", params.min_tokens, ", want at most ",
                                      params.max_tokens, ", the most that fits this request"),
                               "min_tokens", ""});
  return {};
}

// Shortens prompts to the part that the request wants.
ApiResult<void> Truncate(const GenerationRequest& request, size_t max_model_len,
                         const Tokenizer& tokenizer, std::vector<std::vector<int32_t>>& prompts) {
  if (!request.truncate_to) return {};
  const size_t fits = max_model_len - (request.prompt_only ? 0 : 1);
  const size_t most = *request.truncate_to < 0 ? fits : static_cast<size_t>(*request.truncate_to);
  if (most > max_model_len)
    return Unexpected(ApiError{
        400,
        StrCat("'truncate_prompt_tokens' is ", most, ", want at most the model's ", max_model_len),
        "truncate_prompt_tokens", ""});
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::vector<int32_t>& prompt = prompts[i];
    if (prompt.size() <= most) continue;
    const auto surplus = static_cast<ptrdiff_t>(prompt.size() - most);
    if (!request.truncate_left) {
      prompt.resize(most);
      continue;
    }
    // The tokenizer's own beginning of a text is not a part of that text.
    const bool is_text = request.chat || std::holds_alternative<std::string>(request.prompts[i]);
    const bool began =
        is_text && request.add_special_tokens && tokenizer.is_special(prompt.front());
    const ptrdiff_t kept = began && most > 1 ? 1 : 0;
    prompt.erase(prompt.begin() + kept, prompt.begin() + kept + surplus);
  }
  return {};
}

// Bad words are sent to the engine with each prompt.
constexpr size_t kMaxBadWordTokens = 4096;

}  // namespace

Intake::Intake(const ServedModel& model, const Tokenizer& tokenizer)
    : model_(model),
      tokenizer_(tokenizer),
      longest_token_bytes_(LongestToken(tokenizer)),
      fill_in_(FillInTokens::Find(tokenizer)),
      thought_(ThoughtMarks::Find(model.output.thoughts, tokenizer, model.vocabulary)) {}

ApiResult<std::vector<std::vector<int32_t>>> Intake::Prepare(GenerationRequest& request,
                                                             size_t max_model_len,
                                                             const RenderChat& render,
                                                             MemoryShare& memory) const {
  PINION_TRY(CheckModel(request.model));
  PINION_TRY(EncodeBadWords(request, memory));
  PINION_TRY(CheckTokenIds(request.params));
  std::vector<std::vector<int32_t>> prompts;
  if (request.chat) {
    PINION_ASSIGN(const TextOrTokens text, Render(std::move(request.conversation), render));
    SetOutput(std::get<std::string>(text), request);
    PINION_ASSIGN(prompts.emplace_back(),
                  EncodePrompt(text, request.add_special_tokens, max_model_len, memory));
  }
  PINION_TRY(FillGaps(request));
  for (const TextOrTokens& prompt : request.prompts) {
    PINION_ASSIGN(prompts.emplace_back(),
                  EncodePrompt(prompt, request.add_special_tokens, max_model_len, memory));
  }
  PINION_TRY(Truncate(request, max_model_len, tokenizer_, prompts));
  PINION_TRY(FitLengths(prompts, max_model_len, request));
  PINION_TRY(BoundThought(prompts, request));
  return prompts;
}

// Tells the engine where the reasoning may begin and must end.
ApiResult<void> Intake::BoundThought(const std::vector<std::vector<int32_t>>& prompts,
                                     GenerationRequest& request) const {
  const bool before_grammar = request.grammar && request.output.thoughts;
  if (!request.thought_budget && !before_grammar) return {};
  if (!thought_ && request.thought_budget_is_wish) return {};
  if (!thought_)
    return Unexpected(ApiError{
        400,
        "'thinking_token_budget' needs a model whose reasoning is told apart from its answer, "
        "which this one's is not; leave it out, or start the server with --reasoning-parser",
        "thinking_token_budget", ""});
  if (request.grammar && !before_grammar) return {};  // such an answer has no reasoning
  request.params.thought = thought_->rules();
  request.params.thought.budget = request.thought_budget.value_or(-1);
  if (before_grammar) request.params.thought.blank.clear();  // the grammar says what else may begin
  for (const auto& prompt : prompts)
    request.thought_in_prompts.push_back(thought_->TokensIn(prompt));
  // A prompt that runs its mark into the text behind it.
  if (request.output.starts_in_thought && request.thought_in_prompts.front() < 0)
    request.thought_in_prompts.front() = 0;
  return {};
}

// Writes the text before a gap and the text behind it in the model's form.
ApiResult<void> Intake::FillGaps(GenerationRequest& request) const {
  if (!request.fill_in) return {};
  const char* field = request.api == Api::kInfill ? "input_suffix" : "suffix";
  if (!fill_in_)
    return Unexpected(ApiError{
        400,
        StrCat("'", field, "' needs a model that fills gaps, whose tokenizer has tokens for ",
               "it such as <|fim_prefix|>; this one has none, so put all text into a prompt"),
        field, ""});
  for (TextOrTokens& prompt : request.prompts) {
    auto* text = std::get_if<std::string>(&prompt);
    if (!text)
      return Unexpected(
          ApiError{400, StrCat("'", field, "' needs a prompt that is a text"), field, ""});
    *text = fill_in_->Prompt(*text, *request.fill_in);
  }
  request.fill_in.reset();
  std::vector<int32_t>& ends = request.params.stop_token_ids;
  ends.insert(ends.end(), fill_in_->ends().begin(), fill_in_->ends().end());
  return {};
}

// Whether an answer that must be of a grammar may reason first, whose end the engine has to find. A
// prompt that has ended the reasoning wants none; Harmony's messages have no place for a grammar.
bool Intake::MayReason(std::string_view prompt, const ThoughtFormat* format) const {
  return format && thought_ && !thought_->rules().anywhere && !Trim(prompt).ends_with(format->end);
}

// Chooses the formats that the answer to this prompt is searched for; keeps their special tokens.
void Intake::SetOutput(std::string_view prompt, GenerationRequest& request) const {
  OutputRules& rules = request.output;
  if (rules.tools) rules.calls = model_.output.calls;
  rules.thoughts = model_.output.thoughts;
  if (request.grammar) {  // of all of the answer behind its reasoning
    rules.calls = nullptr;
    if (!MayReason(prompt, rules.thoughts)) rules.thoughts = nullptr;
  }
  if (rules.thoughts) rules.starts_in_thought = Trim(prompt).ends_with(rules.thoughts->begin);
  // Of many models, the marks of calls are special.
  if (rules.calls || (rules.thoughts && rules.thoughts->special_tokens))
    request.skip_special_tokens = false;
}

// As vLLM: a word is bad at the beginning of a text and after a space, unless the latter has the
// space as a token of its own.
ApiResult<void> Intake::EncodeBadWords(GenerationRequest& request, MemoryShare& memory) const {
  std::vector<std::vector<int32_t>>& words = request.params.bad_words_ids;
  size_t tokens = 0;
  for (const std::string& text : std::exchange(request.bad_words, {})) {
    const std::string bare(Trim(text));
    PINION_ASSIGN(std::vector<int32_t> first, EncodeText(bare, false, memory));
    PINION_ASSIGN(std::vector<int32_t> later, EncodeText(" " + bare, false, memory));
    const bool same_length = first.size() == later.size();
    const bool differs = same_length && !first.empty() && first.front() != later.front();
    tokens += first.size() + (differs ? later.size() : 0);
    if (!first.empty()) words.push_back(std::move(first));
    if (differs) words.push_back(std::move(later));
  }
  if (tokens <= kMaxBadWordTokens) return {};
  return Unexpected(ApiError{
      400, StrCat("'bad_words' have ", tokens, " tokens in all, want at most ", kMaxBadWordTokens),
      "bad_words", ""});
}

ApiResult<std::vector<int32_t>> Intake::Tokenize(TokenizeRequest request, const RenderChat& render,
                                                 MemoryShare& memory) const {
  PINION_TRY(CheckModel(request.model));
  if (!request.prompt) {
    PINION_ASSIGN(request.prompt, Render(std::move(request.conversation), render));
  }
  return EncodeText(*request.prompt, request.add_special_tokens, memory);
}

ApiResult<std::string> Intake::ApplyTemplate(TokenizeRequest request,
                                             const RenderChat& render) const {
  PINION_TRY(CheckModel(request.model));
  return Render(std::move(request.conversation), render);
}

ApiResult<std::string> Intake::Detokenize(const DetokenizeRequest& request) const {
  PINION_TRY(CheckModel(request.model));
  PINION_TRY(CheckIds(request.tokens, "tokens"));
  return tokenizer_.Decode(request.tokens, false);
}

ApiResult<void> Intake::CheckIds(const std::vector<int32_t>& ids, const char* field) const {
  for (const int32_t id : ids)
    if (static_cast<size_t>(id) >= model_.vocabulary)
      return Unexpected(ApiError{
          400, StrCat("'", field, "' holds token ", id, ", want ids below ", model_.vocabulary),
          field, ""});
  return {};
}

ApiResult<void> Intake::CheckModel(const std::string& name) const {
  if (name.empty() || model_.IsCalled(name)) return {};
  return Unexpected(UnknownModel(name, model_));
}

ApiResult<std::string> Intake::Render(Conversation conversation, const RenderChat& render) const {
  std::string chat_template = std::move(conversation.own_template);
  const auto& of_model =
      conversation.tools.is_null() ? tokenizer_.chat_template() : tokenizer_.tool_template();
  if (chat_template.empty() && of_model)
    chat_template = *of_model;
  else if (chat_template.empty())
    return Unexpected(ApiError{400,
                               "the model has no chat template; use /v1/completions, or put a "
                               "chat_template.jinja into its folder",
                               "messages", ""});
  Json::Object defaults;
  for (const auto& [name, token] : tokenizer_.special_tokens()) defaults.emplace_back(name, token);
  std::vector<Json::Object> kwargs = {std::move(defaults), model_.template_kwargs};
  kwargs.push_back({{"add_generation_prompt", conversation.add_generation_prompt}});
  if (conversation.template_kwargs.is_object())
    kwargs.push_back(std::move(conversation.template_kwargs.object()));
  const TraceSpan span("render");
  auto rendered = render({std::move(chat_template), std::move(conversation.messages),
                          std::move(conversation.tools), MergeObjects(std::move(kwargs)),
                          conversation.continue_final_message, /*fits_contents=*/true,
                          conversation.moves_instructions});
  if (!rendered)
    return Unexpected(
        ApiError{400, StrCat("the chat template refused the messages: ", rendered.error().message),
                 "messages", ""});
  return std::move(*rendered);
}

ApiResult<std::vector<int32_t>> Intake::EncodePrompt(const TextOrTokens& prompt,
                                                     bool add_special_tokens, size_t max_model_len,
                                                     MemoryShare& memory) const {
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt)) {
    PINION_TRY(CheckIds(*ids, "prompt"));
    return *ids;
  }
  const auto& text = std::get<std::string>(prompt);
  // Megabytes that cannot fit anyway are not worth a worker's time.
  if (text.size() / longest_token_bytes_ > max_model_len)
    return Unexpected(ApiError{400,
                               StrCat("the prompt has ", text.size(), " bytes, more than ",
                                      max_model_len, " tokens (the model's length) can hold"),
                               "prompt", "context_length_exceeded"});
  return EncodeText(text, add_special_tokens, memory);
}

ApiResult<std::vector<int32_t>> Intake::EncodeText(const std::string& text, bool add_special_tokens,
                                                   MemoryShare& memory) const {
  const TraceSpan span("tokenise");
  const size_t before = memory.bytes();
  PINION_TRY(Reserve(memory, kBytesPerByte * text.size(),
                     StrCat("the tokens of a text of ", text.size(), " bytes")));
  auto ids = tokenizer_.Encode(text, add_special_tokens);
  if (!ids) return Unexpected(ApiError{400, ids.error().message, "prompt", ""});
  memory.ShrinkTo(before + ids->size() * sizeof(int32_t));
  return std::move(*ids);
}

ApiResult<void> Intake::CheckTokenIds(const SamplingParams& params) const {
  const auto unknown = FindUnknownId(params, model_.vocabulary);
  if (!unknown) return {};
  return Unexpected(ApiError{400, Describe(*unknown, model_.vocabulary), unknown->field, ""});
}

}  // namespace pinion
