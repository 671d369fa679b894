#include "engine/serve/schema.h"

#include <array>
#include <limits>
#include <utility>

#include "engine/base/json_text.h"
#include "engine/base/strings.h"

namespace pinion {
namespace {

using Checked = ApiResult<void>;

constexpr int kMaxLogprobs = 20;  // OpenAI's and vLLM's limit

tl::unexpected<ApiError> Bad(std::string_view param, std::string message) {
  return tl::unexpected<ApiError>(ApiError{400, std::move(message), std::string(param), ""});
}

bool Given(const Json& body, std::string_view key) {
  const Json* value = body.Find(key);
  return value && !value->is_null();
}

template <typename T>
ApiResult<T> Get(const Json& body, std::string_view key, T fallback) {
  auto value = Optional<T>(body, key, std::move(fallback));
  if (!value) return Bad(key, value.error().message);
  return *value;
}

// Whether a field has no effect: null, false, 0, "" or an empty list or object.
bool Harmless(const Json& value) {
  if (value.is_bool()) return !value.boolean();
  if (value.is_number()) return value.number() == 0;
  if (value.is_string()) return value.string().empty();
  if (value.is_array()) return value.array().empty();
  if (value.is_object()) return value.object().empty();
  return true;
}

struct UnsupportedField {
  const char* name;
  const char* advice;
};
constexpr auto kUnsupported = std::to_array<UnsupportedField>({
    {"guided_json", "leave it out and check the answer yourself"},
    {"guided_regex", "leave it out and check the answer yourself"},
    {"guided_choice", "leave it out and check the answer yourself"},
    {"guided_grammar", "leave it out and check the answer yourself"},
    {"structured_outputs", "leave it out and check the answer yourself"},
    {"suffix", "put all text into the prompt"},
    {"prompt_logprobs", "use `pinion score` for the prompt's log-probabilities"},
    {"use_beam_search", "use n with a temperature above 0"},
    {"audio", "send text"},
    {"functions", "use tools"},
    {"function_call", "use tools"},
    {"chat_template", "put the template into the model's folder"},
});

Checked RefuseUnsupported(const Json& body) {
  for (const auto& field : kUnsupported) {
    const Json* value = body.Find(field.name);
    if (value && !Harmless(*value))
      return Bad(field.name, StrCat("'", field.name, "' is not supported; ", field.advice));
  }
  if (const Json* format = body.Find("response_format"); format && !format->is_null()) {
    const Json* type = format->Find("type");
    if (!type || !type->is_string() || type->string() != "text")
      return Bad("response_format",
                 StrCat("'response_format' is ", Excerpt(*format, 100),
                        ", want {\"type\":\"text\"}; constrained output is not supported"));
  }
  if (const Json* choice = body.Find("tool_choice"); choice && !choice->is_null()) {
    if (!choice->is_string() || (choice->string() != "auto" && choice->string() != "none"))
      return Bad("tool_choice",
                 StrCat("'tool_choice' is ", Excerpt(*choice, 100),
                        ", want \"auto\" or \"none\"; a tool call cannot be forced"));
  }
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
  }
  PINION_ASSIGN(request.skip_special_tokens, Get<bool>(body, "skip_special_tokens", true));
  PINION_ASSIGN(request.priority, Get<int>(body, "priority", 0));
  if (Given(body, "timeout")) {
    PINION_ASSIGN(request.timeout_s, Get<double>(body, "timeout", 0));
    if (!(*request.timeout_s > 0))
      return Bad("timeout", StrCat("'timeout' is ", *request.timeout_s, ", want seconds above 0"));
  }
  return {};
}

// Everything in SamplingParams. SDKs write null for fields that were not set: treated as absent.
Checked ReadSampling(const Json& body, const ApiDefaults& defaults, GenerationRequest& request) {
  request.max_tokens_given =
      Given(body, "max_tokens") || (request.chat && Given(body, "max_completion_tokens"));
  // Only so that min_tokens passes: the true limit is set once the prompt's length is known.
  if (request.chat && !request.max_tokens_given)
    request.params.max_tokens = std::numeric_limits<int>::max();
  if (auto read = ReadSamplingParams(body, request.params); !read)
    return Bad("", read.error().message);
  if (request.chat && Given(body, "max_completion_tokens")) {  // the newer name beats the older
    int& most = request.params.max_tokens;
    request.max_tokens_name = "max_completion_tokens";
    PINION_ASSIGN(most, Get<int>(body, request.max_tokens_name, 0));
    if (most < 1)
      return Bad(request.max_tokens_name,
                 StrCat("'max_completion_tokens' is ", most, ", want at least 1"));
  }
  if (defaults.max_new_tokens && request.params.max_tokens > *defaults.max_new_tokens)
    request.params.max_tokens = *defaults.max_new_tokens;
  if (auto valid = Validate(request.params); !valid) return Bad("", valid.error().message);
  const char* count = request.chat ? "top_logprobs" : "logprobs";
  if (request.params.logprobs > kMaxLogprobs)
    return Bad(count, StrCat("'", count, "' is ", request.params.logprobs, ", want at most ",
                             kMaxLogprobs));
  return {};
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

ApiResult<std::vector<Prompt>> ReadPrompts(const Json& body) {
  const Json* prompt = body.Find("prompt");
  if (!prompt || prompt->is_null())
    return Bad("prompt", "'prompt' is missing, want a string, token ids, or a list of either");
  std::vector<Prompt> prompts;
  if (prompt->is_string()) {
    prompts.emplace_back(prompt->string());
    return prompts;
  }
  if (!prompt->is_array() || prompt->array().empty())
    return Bad("prompt", StrCat("'prompt' is ", Excerpt(*prompt),
                                ", want a string, token ids, or a list of either"));
  if (prompt->array().front().is_number()) {
    PINION_ASSIGN(prompts.emplace_back(), ReadTokenIds(*prompt, "prompt"));
    return prompts;
  }
  for (const Json& item : prompt->array()) {
    if (item.is_string()) {
      prompts.emplace_back(item.string());
    } else if (item.is_array()) {
      PINION_ASSIGN(prompts.emplace_back(), ReadTokenIds(item, "prompt"));
    } else {
      return Bad("prompt",
                 StrCat("'prompt' holds ", Excerpt(item), ", want strings or lists of token ids"));
    }
  }
  return prompts;
}

// Joins text parts with newlines, as templates written for plain strings expect.
ApiResult<std::string> ReadContent(const Json* content, const std::string& where) {
  if (!content || content->is_null()) return std::string();
  if (content->is_string()) return content->string();
  const std::string param = where + ".content";
  if (!content->is_array())
    return Bad(param, StrCat("'", param, "' is ", Excerpt(*content),
                             ", want a string or a list of text parts"));
  std::vector<std::string> texts;
  for (const Json& part : content->array()) {
    if (part.is_string()) {
      texts.push_back(part.string());
      continue;
    }
    const Json* type = part.Find("type");
    const Json* text = part.Find("text");
    if (!type || !type->is_string())
      return Bad(param, StrCat("'", param, "' has a part without a type, want \"text\""));
    if (type->string() != "text" || !text || !text->is_string())
      return Bad(param, StrCat("'", param, "' has a part of type ", Excerpt(*type),
                               "; only text parts with a text are supported"));
    texts.push_back(text->string());
  }
  return Join(texts, "\n");
}

// The API carries a tool call's arguments as a JSON string; templates expect the parsed value.
void ParseToolArguments(Json& message) {
  for (auto& [key, calls] : message.object()) {
    if (key != "tool_calls" || !calls.is_array()) continue;
    for (Json& call : calls.array()) {
      const Json* function = call.Find("function");
      const Json* arguments = function ? function->Find("arguments") : nullptr;
      if (!arguments || !arguments->is_string()) continue;
      auto parsed = Json::Parse(arguments->string().empty() ? "{}" : arguments->string());
      if (!parsed) continue;  // the template sees the string as it is
      Json changed = *function;
      changed.Set("arguments", std::move(*parsed));
      call.Set("function", std::move(changed));
    }
  }
}

ApiResult<Json> ReadMessages(const Json& body) {
  const Json* list = body.Find("messages");
  if (!list || !list->is_array() || list->array().empty())
    return Bad("messages", "'messages' must be a list of at least one message");
  Json messages = Json::MakeArray();
  for (const Json& item : list->array()) {
    const std::string where = StrCat("messages[", messages.array().size(), "]");
    if (!item.is_object()) return Bad(where, StrCat("'", where, "' must be an object"));
    const Json* role = item.Find("role");
    if (!role || !role->is_string())
      return Bad(where + ".role", StrCat("'", where, ".role' must be a string"));
    Json message = item;
    PINION_ASSIGN(std::string content, ReadContent(item.Find("content"), where));
    message.Set("content", std::move(content));
    ParseToolArguments(message);
    messages.Append(std::move(message));
  }
  return messages;
}

ApiResult<Conversation> ReadConversation(const Json& body) {
  Conversation chat;
  PINION_ASSIGN(chat.messages, ReadMessages(body));
  if (const Json* tools = body.Find("tools"); tools && !tools->is_null()) {
    if (!tools->is_array()) return Bad("tools", "'tools' must be a list");
    const Json* choice = body.Find("tool_choice");
    const bool wanted = !choice || !choice->is_string() || choice->string() != "none";
    if (wanted && !tools->array().empty()) chat.tools = *tools;
  }
  if (const Json* kwargs = body.Find("chat_template_kwargs"); kwargs && !kwargs->is_null()) {
    if (!kwargs->is_object())
      return Bad("chat_template_kwargs", "'chat_template_kwargs' must be an object");
    chat.template_kwargs = *kwargs;
  }
  PINION_ASSIGN(chat.add_generation_prompt, Get<bool>(body, "add_generation_prompt", true));
  PINION_ASSIGN(chat.continue_final_message, Get<bool>(body, "continue_final_message", false));
  if (chat.continue_final_message && chat.add_generation_prompt &&
      Given(body, "add_generation_prompt"))
    return Bad("continue_final_message",
               "'continue_final_message' and 'add_generation_prompt' cannot both be true");
  if (chat.continue_final_message) chat.add_generation_prompt = false;
  return chat;
}

Checked CheckObject(const Json& body) {
  if (body.is_object()) return RefuseUnsupported(body);
  return Bad("", StrCat("the body is ", body.type_name(), ", want an object"));
}

}  // namespace

Json ToJson(const ApiError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  Json inner = Json::MakeObject();
  inner.Set("message", error.message);
  inner.Set("type", error.status >= 500 ? "server_error" : "invalid_request_error");
  inner.Set("param", or_null(error.param));
  inner.Set("code", or_null(error.code));
  return Json(Json::Object{{"error", std::move(inner)}});
}

Result<ApiDefaults> ReadApiDefaults(const std::optional<Json>& generation_config) {
  ApiDefaults defaults;
  defaults.params.temperature = 1;
  if (!generation_config) return defaults;
  Json chosen = Json::MakeObject();
  for (const char* key : {"temperature", "top_p", "top_k", "min_p", "repetition_penalty"})
    if (Given(*generation_config, key)) chosen.Set(key, *generation_config->Find(key));
  const auto read = [&]() -> Status {
    PINION_TRY(ReadSamplingParams(chosen, defaults.params));
    PINION_ASSIGN(const int most, Optional<int>(*generation_config, "max_new_tokens", 0));
    if (most > 0) defaults.max_new_tokens = most;
    return Validate(defaults.params);
  };
  if (auto done = read(); !done)
    return Unexpected(std::move(done).error().In("generation_config.json"));
  return defaults;
}

ApiResult<GenerationRequest> ReadCompletionRequest(const Json& body, const ApiDefaults& defaults) {
  PINION_TRY(CheckObject(body));
  GenerationRequest request;
  request.params = defaults.params;
  PINION_ASSIGN(request.prompts, ReadPrompts(body));
  PINION_ASSIGN(request.echo, Get<bool>(body, "echo", false));
  PINION_ASSIGN(request.add_special_tokens, Get<bool>(body, "add_special_tokens", true));
  PINION_TRY(ReadCommon(body, request));
  PINION_TRY(ReadSampling(body, defaults, request));
  if (request.echo && request.params.logprobs >= 0)
    return Bad("echo",
               "'echo' together with 'logprobs' is not supported; use `pinion score` for "
               "the prompt's log-probabilities");
  if (request.prompts.size() * static_cast<size_t>(request.n) > kMaxChoices)
    return Bad("prompt", StrCat(request.prompts.size(), " prompts with n ", request.n, " exceed ",
                                kMaxChoices, " choices; send several requests"));
  return request;
}

ApiResult<GenerationRequest> ReadChatRequest(const Json& body, const ApiDefaults& defaults) {
  PINION_TRY(CheckObject(body));
  GenerationRequest request;
  request.chat = true;
  request.params = defaults.params;
  PINION_ASSIGN(request.conversation, ReadConversation(body));
  PINION_TRY(ReadCommon(body, request));
  PINION_TRY(ReadSampling(body, defaults, request));
  return request;
}

ApiResult<TokenizeRequest> ReadTokenizeRequest(const Json& body) {
  PINION_TRY(CheckObject(body));
  TokenizeRequest request;
  PINION_ASSIGN(request.model, Get<std::string>(body, "model", ""));
  if (Given(body, "messages")) {
    PINION_ASSIGN(request.conversation, ReadConversation(body));
    PINION_ASSIGN(request.add_special_tokens, Get<bool>(body, "add_special_tokens", false));
    return request;
  }
  const Json* prompt = body.Find("prompt");
  if (!prompt || !prompt->is_string())
    return Bad("prompt", "'prompt' must be a string, or 'messages' a list");
  request.prompt = prompt->string();
  PINION_ASSIGN(request.add_special_tokens, Get<bool>(body, "add_special_tokens", true));
  return request;
}

ApiResult<DetokenizeRequest> ReadDetokenizeRequest(const Json& body) {
  PINION_TRY(CheckObject(body));
  DetokenizeRequest request;
  PINION_ASSIGN(request.model, Get<std::string>(body, "model", ""));
  const Json* tokens = body.Find("tokens");
  if (!tokens || !tokens->is_array()) return Bad("tokens", "'tokens' must be a list of token ids");
  PINION_ASSIGN(request.tokens, ReadTokenIds(*tokens, "tokens"));
  return request;
}

}  // namespace pinion
