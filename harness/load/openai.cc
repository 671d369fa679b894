#include "harness/load/openai.h"

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

Json Message(const char* role, const std::string& content) {
  return Json::Object{{"role", role}, {"content", content}};
}

Json Messages(const Exchanges& exchanges) {
  Json messages = Json::MakeArray();
  if (!exchanges.context.empty()) messages.Append(Message("system", exchanges.context));
  for (size_t i = 0; i < exchanges.said.size(); ++i)
    messages.Append(Message(i % 2 == 0 ? "user" : "assistant", exchanges.said[i]));
  return messages;
}

std::string Text(const Exchanges& exchanges) {
  std::vector<std::string> parts = exchanges.said;
  if (!exchanges.context.empty()) parts.insert(parts.begin(), exchanges.context);
  return Join(parts, "\n");
}

std::optional<int> Count(const Json& usage, const char* key) {
  const Json* value = usage.Find(key);
  if (!value || !value->is_int() || value->integer() < 0 || value->integer() > INT32_MAX)
    return std::nullopt;
  return static_cast<int>(value->integer());
}

void ReadUsage(const Json& usage, StreamEvent& event) {
  event.prompt_tokens = Count(usage, "prompt_tokens");
  event.output_tokens = Count(usage, "completion_tokens");
  if (const Json* details = usage.Find("prompt_tokens_details"))
    event.cached_tokens = Count(*details, "cached_tokens");
}

// Appends a string member; returns whether it exists.
bool TakeText(const Json& object, const char* key, std::string& text) {
  const Json* value = object.Find(key);
  if (!value || !value->is_string()) return false;
  text += value->string();
  return true;
}

void ReadChoice(const Json& choice, Endpoint endpoint, StreamEvent& event) {
  const Json* finish = choice.Find("finish_reason");
  const bool finished = finish && finish->is_string();
  event.is_end = finished;
  if (endpoint == Endpoint::kCompletions) {
    // A token whose text is withheld until a character is complete arrives as an empty text.
    const bool has_text = TakeText(choice, "text", event.text);
    event.is_token = has_text && (!event.text.empty() || !finished);
    return;
  }
  const Json* delta = choice.Find("delta");
  if (!delta) return;
  for (const char* key : {"reasoning_content", "reasoning", "content"})
    TakeText(*delta, key, event.text);
  const Json* tools = delta->Find("tool_calls");
  event.is_token = !event.text.empty() || (tools && tools->is_array() && !tools->array().empty());
}

}  // namespace

const char* Name(Endpoint endpoint) { return endpoint == Endpoint::kChat ? "chat" : "completions"; }

const char* Path(Endpoint endpoint) {
  return endpoint == Endpoint::kChat ? "/v1/chat/completions" : "/v1/completions";
}

Result<Endpoint> ParseEndpoint(const std::string& name) {
  for (Endpoint endpoint : {Endpoint::kCompletions, Endpoint::kChat})
    if (name == Name(endpoint)) return endpoint;
  return Fail(ErrorCode::kUsage,
              StrCat("unknown endpoint '", name, "'; known are completions, chat"));
}

std::string RequestBody(const RequestStyle& style, const Exchanges& exchanges, int output_len) {
  Json body = Json::MakeObject();
  body.Set("model", style.model);
  if (style.endpoint == Endpoint::kChat) {
    body.Set("messages", Messages(exchanges));
  } else {
    body.Set("prompt", Text(exchanges));
  }
  body.Set("max_tokens", output_len);
  body.Set("temperature", style.temperature);
  if (style.ignore_eos) body.Set("ignore_eos", true);
  body.Set("stream", true);
  Json options = Json::MakeObject();
  options.Set("include_usage", true);
  body.Set("stream_options", std::move(options));
  if (style.extra_body.is_object())
    for (const auto& [key, value] : style.extra_body.object()) body.Set(key, value);
  return body.Dump();
}

Result<StreamEvent> ReadStreamEvent(std::string_view data, Endpoint endpoint) {
  StreamEvent event;
  if (Trim(data) == "[DONE]") {
    event.is_end = true;
    return event;
  }
  auto json = Json::Parse(data);
  if (!json || !json->is_object())
    return Fail(ErrorCode::kFailed,
                StrCat("the server sent an event that is not a JSON object: ", data.substr(0, 80)));
  if (const Json* error = json->Find("error"); error && !error->is_null()) {
    const Json* message = error->Find("message");
    return Fail(ErrorCode::kFailed,
                message && message->is_string() ? message->string() : error->Dump());
  }
  if (const Json* usage = json->Find("usage"); usage && usage->is_object())
    ReadUsage(*usage, event);
  const Json* choices = json->Find("choices");
  if (choices && choices->is_array() && !choices->array().empty())
    ReadChoice(choices->array().front(), endpoint, event);
  return event;
}

}  // namespace pinion::harness
