#include "engine/serve/response_settings.h"

#include <string_view>
#include <utility>

#include "engine/base/json_text.h"
#include "engine/base/strings.h"
#include "engine/serve/field_readers.h"

namespace pinion {
namespace {

Json SentOr(const Json& body, const char* key, Json fallback) {
  if (Given(body, key)) return *body.Find(key);
  return fallback;
}

void SetIfMissing(Json& object, const char* key, Json value) {
  if (!object.Find(key)) object.Set(key, std::move(value));
}

ApiResult<Json> ShownMetadata(const Json& body) {
  if (!Given(body, "metadata")) return Json::MakeObject();
  const Json& metadata = *body.Find("metadata");
  if (!metadata.is_object()) return Bad("metadata", "'metadata' must be an object of strings");
  for (const auto& [key, value] : metadata.object())
    if (!value.is_string())
      return Bad("metadata", StrCat("'metadata' has ", Excerpt(value), " as '", key.substr(0, 64),
                                    "', want a string"));
  return metadata;
}

// Answers keep to a schema whether `strict` asks for it or not.
Json ShownFormat(const Json* text) {
  if (!text || !Given(*text, "format")) return Json(Json::Object{{"type", "text"}});
  Json format = *text->Find("format");
  if (format.Find("type")->string() != "json_schema") return format;
  SetIfMissing(format, "name", "response");
  SetIfMissing(format, "description", {});
  SetIfMissing(format, "strict", true);
  return format;
}

ApiResult<Json> ShownText(const Json& body) {
  const Json* text = Given(body, "text") ? body.Find("text") : nullptr;
  std::string verbosity = "medium";
  if (text) {
    PINION_ASSIGN(verbosity, Get<std::string>(*text, "verbosity", "medium"));
  }
  if (verbosity != "low" && verbosity != "medium" && verbosity != "high")
    return Bad("text.verbosity", StrCat("'text.verbosity' is '", verbosity.substr(0, 40),
                                        "', want low, medium or high (of which none changes the "
                                        "answer here)"));
  return Json(Json::Object{{"format", ShownFormat(text)}, {"verbosity", std::move(verbosity)}});
}

Json ShownTools(const Json& body) {
  Json tools = SentOr(body, "tools", Json::MakeArray());
  for (Json& tool : tools.array())
    for (const char* key : {"description", "parameters", "strict"}) SetIfMissing(tool, key, {});
  return tools;
}

// Thoughts are shown as they are, so that there is no summary whatever was asked for.
Json ShownReasoning(const Json& body) {
  const Json* reasoning = Given(body, "reasoning") ? body.Find("reasoning") : nullptr;
  Json effort = reasoning ? SentOr(*reasoning, "effort", {}) : Json();
  return Json(Json::Object{{"effort", std::move(effort)}, {"summary", Json()}});
}

}  // namespace

ApiResult<std::string> ShownByResponse(const Json& body) {
  Json shown = Json::MakeObject();
  for (const char* key : {"instructions", "max_output_tokens"})
    shown.Set(key, SentOr(body, key, {}));
  for (const char* key :
       {"prompt_cache_key", "prompt_cache_retention", "safety_identifier", "user"}) {
    PINION_TRY(Get<std::string>(body, key, ""));
    shown.Set(key, SentOr(body, key, {}));
  }
  PINION_TRY(Get<int>(body, "max_tool_calls", 0));
  shown.Set("max_tool_calls", SentOr(body, "max_tool_calls", {}));
  PINION_ASSIGN(Json metadata, ShownMetadata(body));
  shown.Set("metadata", std::move(metadata));
  shown.Set("parallel_tool_calls", SentOr(body, "parallel_tool_calls", true));
  shown.Set("reasoning", ShownReasoning(body));
  PINION_ASSIGN(Json text, ShownText(body));
  shown.Set("text", std::move(text));
  shown.Set("tool_choice", SentOr(body, "tool_choice", "auto"));
  shown.Set("tools", ShownTools(body));
  shown.Set("top_logprobs", SentOr(body, "top_logprobs", 0));
  const std::string object = shown.Dump();
  return object.substr(1, object.size() - 2);
}

}  // namespace pinion
