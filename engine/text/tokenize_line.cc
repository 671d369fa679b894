#include "engine/text/tokenize_line.h"

#include <limits>
#include <vector>

#include "engine/base/strings.h"

namespace pinion {
namespace {

Result<std::vector<int32_t>> ReadIds(const Json& line, std::string_view key) {
  const Json* list = line.Find(key);
  std::vector<int32_t> ids;
  if (!list || list->is_null()) return ids;
  if (!list->is_array())
    return Fail(ErrorCode::kUsage, StrCat("'", key, "' is ", list->type_name(), ", want an array"));
  for (const Json& id : list->array()) {
    if (!id.is_int() || id.integer() < 0 || id.integer() > std::numeric_limits<int32_t>::max())
      return Fail(ErrorCode::kUsage,
                  StrCat("'", key, "' holds ", id.Dump(), ", want token ids from 0 to 2^31 - 1"));
    ids.push_back(static_cast<int32_t>(id.integer()));
  }
  return ids;
}

Json ErrorAnswer(const Error& error) { return Json::Object{{"error", error.message}}; }

// A key of the request, of the expected kind; otherwise sets an error in `line`.
template <typename T>
Result<T> OptionalKey(const Json& object, std::string_view key, T fallback) {
  auto value = Optional<T>(object, key, std::move(fallback));
  if (!value) return Fail(ErrorCode::kUsage, value.error().message);
  return value;
}

}  // namespace

LineTokenizer::LineTokenizer(const Tokenizer& tokenizer, std::optional<std::string> chat_template,
                             std::optional<std::string> now)
    : tokenizer_(tokenizer),
      chat_template_(chat_template ? chat_template : tokenizer.chat_template()),
      tool_template_(chat_template ? chat_template : tokenizer.tool_template()),
      now_(std::move(now)) {}

Result<Json> LineTokenizer::Answer(const Json& line) {
  if (!line.is_object())
    return Fail(ErrorCode::kUsage, StrCat("it is ", line.type_name(), ", want an object"));
  if (line.Find("messages")) return AnswerMessages(line);
  if (line.Find("text")) return AnswerText(line);
  PINION_ASSIGN(const bool stream, OptionalKey<bool>(line, "stream", false));
  if (stream) return AnswerStream(line);
  if (line.Find("ids")) return AnswerIds(line);
  return Fail(ErrorCode::kUsage, "it has none of 'text', 'ids', 'messages'");
}

Result<Json> LineTokenizer::AnswerText(const Json& line) {
  PINION_ASSIGN(const std::string text, OptionalKey<std::string>(line, "text", ""));
  PINION_ASSIGN(const bool special, OptionalKey<bool>(line, "add_special_tokens", true));
  const auto ids = tokenizer_.Encode(text, special);
  if (!ids) return ErrorAnswer(ids.error());
  return Json(Json::Object{{"ids", *ids}, {"decoded", tokenizer_.Decode(*ids, true)}});
}

Result<Json> LineTokenizer::AnswerIds(const Json& line) {
  PINION_ASSIGN(const std::vector<int32_t> ids, ReadIds(line, "ids"));
  return Json(Json::Object{{"decoded", tokenizer_.Decode(ids, true)},
                           {"decoded_with_special", tokenizer_.Decode(ids, false)}});
}

Result<Json> LineTokenizer::AnswerStream(const Json& line) {
  PINION_ASSIGN(const std::vector<int32_t> prompt_ids, ReadIds(line, "prompt_ids"));
  PINION_ASSIGN(const std::vector<int32_t> ids, ReadIds(line, "ids"));
  StreamDecoder decoder(tokenizer_, prompt_ids);
  Json emit = Json::MakeArray();
  for (int32_t id : ids) emit.Append(decoder.Push(id));
  return Json(Json::Object{{"emit", std::move(emit)}, {"flush", decoder.Flush()}});
}

Result<Json> ChatVariables(const Tokenizer& tokenizer, const Json& request) {
  Json variables = Json::MakeObject();
  for (const auto& [role, token] : tokenizer.special_tokens()) variables.Set(role, token);
  PINION_ASSIGN(const bool prompt, OptionalKey<bool>(request, "add_generation_prompt", true));
  variables.Set("add_generation_prompt", prompt);
  const Json* kwargs = request.Find("kwargs");
  if (!kwargs || kwargs->is_null()) return variables;
  if (!kwargs->is_object())
    return Fail(ErrorCode::kUsage, StrCat("'kwargs' is ", kwargs->type_name(), ", want an object"));
  for (const auto& [name, value] : kwargs->object()) variables.Set(name, value);
  return variables;
}

Result<Json> LineTokenizer::AnswerMessages(const Json& line) {
  ChatRequest request;
  if (const Json* tools = line.Find("tools")) request.tools = *tools;
  const auto& chosen = request.tools.is_null() ? chat_template_ : tool_template_;
  if (!chosen)
    return Json(Json::Object{
        {"error", "the model has no chat template: name a file with --chat-template"}});
  request.chat_template = *chosen;
  request.messages = *line.Find("messages");
  PINION_ASSIGN(request.kwargs, ChatVariables(tokenizer_, line));
  PINION_ASSIGN(request.continue_final_message,
                OptionalKey<bool>(line, "continue_final_message", false));
  if (!renderer_) {
    PINION_ASSIGN(renderer_, ChatRenderer::Start(now_));
  }
  const auto rendered = renderer_->Render(request);
  if (!rendered) return ErrorAnswer(rendered.error());
  // The template has written the special tokens already.
  const auto ids = tokenizer_.Encode(*rendered, /*add_special_tokens=*/false);
  if (!ids) return ErrorAnswer(ids.error());
  return Json(Json::Object{{"rendered", *rendered}, {"ids", *ids}});
}

}  // namespace pinion
