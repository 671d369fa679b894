#include "engine/serve/schema.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "engine/base/json_text.h"
#include "engine/base/strings.h"
#include "engine/serve/field_readers.h"

namespace pinion {
namespace {

using Checked = ApiResult<void>;

constexpr const char* kMaxNewTokens = "max_new_tokens";

constexpr size_t kMaxSaltBytes = 1024;

Checked ReadBadWords(const Json& body, GenerationRequest& request) {
  const Json* words = body.Find("bad_words");
  if (!words || words->is_null()) return {};
  if (!words->is_array())
    return Bad("bad_words", StrCat("'bad_words' is ", Excerpt(*words), ", want a list of strings"));
  for (const Json& word : words->array()) {
    if (!word.is_string() || Trim(word.string()).empty())
      return Bad("bad_words", StrCat("'bad_words' holds ", Excerpt(word), ", want words"));
    request.bad_words.push_back(word.string());
  }
  return {};
}

Checked ReadTruncation(const Json& body, GenerationRequest& request) {
  PINION_ASSIGN(const std::string side, Get<std::string>(body, "truncation_side", "left"));
  if (side != "left" && side != "right")
    return Bad("truncation_side",
               StrCat("'truncation_side' is '", side.substr(0, 20), "', want left or right"));
  request.truncate_left = side == "left";
  if (!Given(body, "truncate_prompt_tokens")) return {};
  PINION_ASSIGN(request.truncate_to, Get<int>(body, "truncate_prompt_tokens", 0));
  if (*request.truncate_to >= 1 || *request.truncate_to == -1) return {};
  return Bad("truncate_prompt_tokens", StrCat("'truncate_prompt_tokens' is ", *request.truncate_to,
                                              ", want at least 1, or -1 for what fits the model"));
}

Checked ReadThoughtBudget(const Json& body, GenerationRequest& request) {
  constexpr const char* kField = "thinking_token_budget";
  if (!Given(body, kField)) return {};
  PINION_ASSIGN(const int budget, Get<int>(body, kField, -1));
  if (budget < -1)
    return Bad(kField, StrCat("'", kField, "' is ", budget,
                              ", want tokens from 0 on, or -1 for any number"));
  if (budget >= 0) request.thought_budget = budget;
  return {};
}

// Number of choices, streaming and the other fields that both endpoints share.
Checked ReadCommon(const Json& body, GenerationRequest& request) {
  PINION_ASSIGN(request.model, Get<std::string>(body, "model", ""));
  PINION_ASSIGN(request.n, Get<int>(body, "n", 1));
  if (request.n < 1 || request.n > static_cast<int>(kMaxChoices))
    return Bad("n", StrCat("'n' is ", request.n, ", want 1 to ", kMaxChoices));
  PINION_ASSIGN(const int best_of, Get<int>(body, "best_of", request.n));
  if (best_of != request.n)
    return Bad("best_of", StrCat("'best_of' is ", best_of, " and 'n' is ", request.n,
                                 "; picking the best is not supported: leave best_of out"));
  PINION_ASSIGN(request.stream, Get<bool>(body, "stream", false));
  if (const Json* options = body.Find("stream_options"); options && !options->is_null()) {
    if (!options->is_object()) return Bad("stream_options", "'stream_options' must be an object");
    if (!request.stream)
      return Bad("stream_options", "'stream_options' is only allowed together with stream: true");
    PINION_ASSIGN(request.include_usage, Get<bool>(*options, "include_usage", false));
    PINION_ASSIGN(const bool always, Get<bool>(*options, "continuous_usage_stats", false));
    request.usage_in_parts = request.include_usage && always;
  }
  PINION_ASSIGN(request.skip_special_tokens, Get<bool>(body, "skip_special_tokens", true));
  PINION_ASSIGN(request.priority, Get<int>(body, "priority", 0));
  // No tokenizer here puts spaces between special tokens, so that there are none to leave out.
  PINION_ASSIGN([[maybe_unused]] const bool spaces,
                Get<bool>(body, "spaces_between_special_tokens", true));
  PINION_ASSIGN(request.return_token_ids, Get<bool>(body, "return_token_ids", false));
  PINION_ASSIGN(request.tokens_as_ids, Get<bool>(body, "return_tokens_as_token_ids", false));
  PINION_TRY(ReadCacheSalt(body, request));
  PINION_TRY(ReadBadWords(body, request));
  PINION_TRY(ReadTruncation(body, request));
  PINION_TRY(ReadGrammar(body, request));
  PINION_TRY(ReadThoughtBudget(body, request));
  if (Given(body, "timeout")) {
    PINION_ASSIGN(request.timeout_s, Get<double>(body, "timeout", 0));
    if (!(*request.timeout_s > 0))
      return Bad("timeout", StrCat("'timeout' is ", *request.timeout_s, ", want seconds above 0"));
  }
  return {};
}

// Log-probabilities of the prompt's tokens, which `echo` shows as well, in the form of the
// answer's.
Checked ReadPromptLogprobs(const Json& body, GenerationRequest& request) {
  int& count = request.prompt_logprobs;
  PINION_ASSIGN(count, Get<int>(body, "prompt_logprobs", -1));
  if (count < -1 || (count == -1 && Given(body, "prompt_logprobs")))
    return Bad("prompt_logprobs", StrCat("'prompt_logprobs' is ", count, ", want at least 0"));
  const int echoed = request.echo ? request.params.logprobs : -1;
  request.params.prompt_logprobs = std::max(count, echoed);
  if (!request.stream || request.params.prompt_logprobs < 0) return {};
  // All at once they would keep the event loop busy for as long as the client likes.
  const char* name = count >= 0 ? "prompt_logprobs" : "echo";
  return Bad(name,
             StrCat("'", name, "' with log-probabilities of the prompt is not supported in a ",
                    "stream; send the request without 'stream'"));
}

// The sentence begins with the field's name, quoted or not.
tl::unexpected<ApiError> BadSampling(const Json& body, std::string message) {
  const size_t begin = message.starts_with("'") ? 1 : 0;
  const std::string name = message.substr(begin, message.find_first_of("' ", begin) - begin);
  return Bad(body.Find(name) ? name : "", std::move(message));
}

// Everything in SamplingParams. SDKs write null for fields that were not set: treated as absent.
Checked ReadSampling(const Json& body, const ApiDefaults& defaults, GenerationRequest& request) {
  request.max_tokens_given =
      Given(body, "max_tokens") || (request.chat && Given(body, "max_completion_tokens"));
  // Only so that min_tokens passes: the true limit is set once the prompt's length is known.
  if (request.chat && !request.max_tokens_given)
    request.params.max_tokens = std::numeric_limits<int>::max();
  if (auto read = ReadSamplingParams(body, request.params); !read)
    return BadSampling(body, read.error().message);
  if (request.chat && Given(body, "max_completion_tokens")) {  // the newer name beats the older
    int& most = request.params.max_tokens;
    request.max_tokens_name = "max_completion_tokens";
    PINION_ASSIGN(most, Get<int>(body, request.max_tokens_name, 0));
    if (most < 1)
      return Bad(request.max_tokens_name,
                 StrCat("'max_completion_tokens' is ", most, ", want at least 1"));
  }
  if (request.echo && request.max_tokens_given && request.params.max_tokens == 0) {
    request.prompt_only = true;
    request.params.max_tokens = 1;  // as if one token were generated, which none is
  }
  if (defaults.max_new_tokens && request.params.max_tokens > *defaults.max_new_tokens)
    request.params.max_tokens = *defaults.max_new_tokens;
  if (auto valid = Validate(request.params); !valid)
    return BadSampling(body, valid.error().message);
  return ReadPromptLogprobs(body, request);
}

// As in vLLM: only what the assistant has said itself.
void EchoLastMessage(GenerationRequest& request) {
  const Json& last = request.conversation.messages.array().back();
  if (last.Find("role")->string() != "assistant") return;
  request.echo = true;
  request.echoed = TextOfContent(*last.Find("content"));
}

ApiResult<std::vector<int32_t>> ReadTokenIds(const Json& list, std::string_view param) {
  std::vector<int32_t> ids;
  ids.reserve(list.array().size());
  for (const Json& id : list.array()) {
    if (!id.is_int() || id.integer() < 0 || id.integer() > std::numeric_limits<int32_t>::max())
      return Bad(param, StrCat("'", param, "' holds ", Excerpt(id), ", want token ids >= 0"));
    ids.push_back(static_cast<int32_t>(id.integer()));
  }
  return ids;
}

}  // namespace

ApiResult<void> ReadCacheSalt(const Json& body, GenerationRequest& request) {
  if (!Given(body, "cache_salt")) return {};
  PINION_ASSIGN(request.cache_salt, Get<std::string>(body, "cache_salt", ""));
  if (request.cache_salt.empty() || request.cache_salt.size() > kMaxSaltBytes)
    return Bad("cache_salt", StrCat("'cache_salt' has ", request.cache_salt.size(),
                                    " bytes, want 1 to ", kMaxSaltBytes));
  return {};
}

ApiResult<std::vector<TextOrTokens>> ReadPrompts(const Json& body, const char* field) {
  const Json* prompt = body.Find(field);
  if (!prompt || prompt->is_null())
    return Bad(field, StrCat("'", field, "' is missing, want a string, token ids, or a list of ",
                             "either"));
  std::vector<TextOrTokens> prompts;
  if (prompt->is_string()) {
    prompts.emplace_back(prompt->string());
    return prompts;
  }
  if (!prompt->is_array() || prompt->array().empty())
    return Bad(field, StrCat("'", field, "' is ", Excerpt(*prompt),
                             ", want a string, token ids, or a list of either"));
  if (prompt->array().front().is_number()) {
    PINION_ASSIGN(prompts.emplace_back(), ReadTokenIds(*prompt, field));
    return prompts;
  }
  for (const Json& item : prompt->array()) {
    if (item.is_string()) {
      prompts.emplace_back(item.string());
    } else if (item.is_array()) {
      PINION_ASSIGN(prompts.emplace_back(), ReadTokenIds(item, field));
    } else {
      return Bad(field, StrCat("'", field, "' holds ", Excerpt(item),
                               ", want strings or lists of token ids"));
    }
  }
  return prompts;
}

Json ToJson(const ApiError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  Json inner = Json::MakeObject();
  inner.Set("message", error.message);
  inner.Set("type", error.status >= 500 ? "server_error" : "invalid_request_error");
  inner.Set("param", or_null(error.param));
  inner.Set("code", or_null(error.code));
  return Json(Json::Object{{"error", std::move(inner)}});
}

const std::vector<std::string>& ApiDefaultNames() {
  static const std::vector<std::string> names = {
      "temperature", "top_p", "top_k", "min_p", "repetition_penalty", kMaxNewTokens};
  return names;
}

Result<ApiDefaults> ReadApiDefaults(const std::optional<Json>& generation_config,
                                    const Json::Object& overrides) {
  ApiDefaults defaults;
  defaults.params.temperature = 1;
  std::vector<Json::Object> parts;
  if (generation_config && generation_config->is_object())
    parts.push_back(generation_config->object());
  parts.push_back(overrides);
  const Json config = MergeObjects(std::move(parts));
  Json chosen = Json::MakeObject();
  for (const std::string& key : ApiDefaultNames())
    if (key != kMaxNewTokens && Given(config, key)) chosen.Set(key, *config.Find(key));
  const auto read = [&]() -> Status {
    PINION_TRY(ReadSamplingParams(chosen, defaults.params));
    PINION_ASSIGN(const int most, Optional<int>(config, kMaxNewTokens, 0));
    if (most > 0) defaults.max_new_tokens = most;
    return Validate(defaults.params);
  };
  if (auto done = read(); !done)
    return Unexpected(std::move(done).error().In("generation_config.json"));
  return defaults;
}

ApiResult<GenerationRequest> ReadCompletionRequest(const Json& body, const ApiDefaults& defaults) {
  GenerationRequest request;
  request.params = defaults.params;
  PINION_ASSIGN(request.prompts, ReadPrompts(body, "prompt"));
  PINION_ASSIGN(request.echo, Get<bool>(body, "echo", false));
  PINION_ASSIGN(std::string suffix, Get<std::string>(body, "suffix", ""));
  if (!suffix.empty() && request.echo)
    return Bad("suffix", "'suffix' and 'echo' cannot be combined; leave 'echo' out");
  if (!suffix.empty()) request.fill_in = FillIn{std::move(suffix)};
  PINION_ASSIGN(request.add_special_tokens, Get<bool>(body, "add_special_tokens", true));
  PINION_TRY(ReadCommon(body, request));
  PINION_TRY(ReadSampling(body, defaults, request));
  if (request.prompts.size() * static_cast<size_t>(request.n) > kMaxChoices)
    return Bad("prompt", StrCat(request.prompts.size(), " prompts with n ", request.n, " exceed ",
                                kMaxChoices, " choices; send several requests"));
  PINION_TRY(ReadBeamSearch(body, request));
  return request;
}

namespace {

// OpenAI's: the kinds of output that the answer is to have.
Checked CheckModalities(const Json& body) {
  const Json* asked = body.Find("modalities");
  if (!asked || asked->is_null()) return {};
  const bool text = asked->is_array() &&
                    std::all_of(asked->array().begin(), asked->array().end(), [](const Json& one) {
                      return one.is_string() && one.string() == "text";
                    });
  if (text) return {};
  return Bad("modalities",
             StrCat("'modalities' is ", Excerpt(*asked), ", want [\"text\"], which is all that ",
                    "this server answers with"));
}

// vLLM calls the text `prompt` and llama-server `content`, which has no special tokens before it
// unless it is asked for them.
Checked ReadText(const Json& body, std::optional<bool> adds, TokenizeRequest& request) {
  const bool llama = Given(body, "content");
  if (llama && Given(body, "prompt"))
    return Bad("content", "'content' and 'prompt' are two names of one field; send one of them");
  const Json* text = body.Find(llama ? "content" : "prompt");
  if (!text || !text->is_string())
    return Bad(
        llama ? "content" : "prompt",
        llama ? "'content' must be a string" : "'prompt' must be a string, or 'messages' a list");
  request.prompt = text->string();
  request.add_special_tokens = adds.value_or(!llama);
  return {};
}

ApiResult<std::optional<bool>> ReadAddSpecial(const Json& body) {
  std::optional<bool> adds;
  for (const char* name : {"add_special", "add_special_tokens"}) {
    if (!Given(body, name)) continue;
    if (adds)
      return Bad("add_special",
                 "'add_special' and 'add_special_tokens' are two names of one field; send one of "
                 "them");
    PINION_ASSIGN(adds, Get<bool>(body, name, true));
  }
  return adds;
}

}  // namespace

ApiResult<GenerationRequest> ReadChatRequest(const Json& body, const ApiDefaults& defaults) {
  GenerationRequest request;
  request.api = Api::kChat;
  request.chat = true;
  request.params = defaults.params;
  // A template writes its own.
  PINION_ASSIGN(request.add_special_tokens, Get<bool>(body, "add_special_tokens", false));
  PINION_ASSIGN(request.conversation, ReadConversation(body));
  if (!request.conversation.tools.is_null())
    request.output.tools = std::make_shared<const KnownTools>(request.conversation.tools);
  PINION_ASSIGN(request.output.parallel, Get<bool>(body, "parallel_tool_calls", true));
  PINION_ASSIGN(request.output.shows_thoughts, Get<bool>(body, "include_reasoning", true));
  PINION_TRY(CheckModalities(body));
  PINION_TRY(ReadCommon(body, request));
  PINION_TRY(ReadToolChoice(body, request));
  PINION_TRY(ReadSampling(body, defaults, request));
  PINION_ASSIGN(const bool echo, Get<bool>(body, "echo", false));
  if (echo) EchoLastMessage(request);
  PINION_TRY(ReadBeamSearch(body, request));
  return request;
}

ApiResult<TokenizeRequest> ReadTokenizeRequest(const Json& body) {
  TokenizeRequest request;
  PINION_ASSIGN(request.model, Get<std::string>(body, "model", ""));
  PINION_ASSIGN(request.token_texts, Get<bool>(body, "return_token_strs", false));
  PINION_ASSIGN(request.pieces, Get<bool>(body, "with_pieces", false));
  PINION_ASSIGN(const bool parses, Get<bool>(body, "parse_special", true));
  if (!parses)
    return Bad("parse_special",
               "'parse_special' is false, but the texts of special tokens always become those "
               "tokens; leave it out");
  PINION_ASSIGN(const std::optional<bool> adds, ReadAddSpecial(body));
  if (Given(body, "messages")) {
    for (const char* other : {"content", "prompt"})
      if (Given(body, other))
        return Bad(other, StrCat("'", other, "' and 'messages' are given; send one of them"));
    PINION_ASSIGN(request.conversation, ReadConversation(body));
    request.add_special_tokens = adds.value_or(false);  // a template writes its own
    return request;
  }
  PINION_TRY(ReadText(body, adds, request));
  return request;
}

ApiResult<DetokenizeRequest> ReadDetokenizeRequest(const Json& body) {
  DetokenizeRequest request;
  PINION_ASSIGN(request.model, Get<std::string>(body, "model", ""));
  const Json* tokens = body.Find("tokens");
  if (!tokens || !tokens->is_array()) return Bad("tokens", "'tokens' must be a list of token ids");
  PINION_ASSIGN(request.tokens, ReadTokenIds(*tokens, "tokens"));
  return request;
}

}  // namespace pinion
