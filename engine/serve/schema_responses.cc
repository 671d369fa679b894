// Reads the bodies of OpenAI's Responses as those of chat completions, which say the same.

#include "engine/serve/schema_responses.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/json_text.h"
#include "engine/base/strings.h"
#include "engine/serve/field_readers.h"
#include "engine/serve/fields.h"
#include "engine/serve/response_items.h"
#include "engine/serve/response_settings.h"

namespace pinion {
namespace {

using Checked = ApiResult<void>;

Checked AddLengthOfResponses(const Json& body, Json& chat) {
  if (!Given(body, "max_output_tokens")) return {};
  PINION_ASSIGN(const int most, Get<int>(body, "max_output_tokens", 0));
  if (most < 1)
    return Bad("max_output_tokens", StrCat("'max_output_tokens' is ", most, ", want at least 1"));
  chat.Set("max_completion_tokens", most);
  return {};
}

Checked AddToolsOfResponses(const Json& body, Json& chat) {
  const Json* list = body.Find("tools");
  if (!list || list->is_null()) return {};
  if (!list->is_array()) return Bad("tools", "'tools' must be a list");
  Json tools = Json::MakeArray();
  for (const Json& tool : list->array()) {
    const std::string where = StrCat("tools[", tools.array().size(), "]");
    PINION_ASSIGN(const std::string type, ReadString(tool, "type", where));
    if (type != "function")
      return Bad(where, StrCat("'", where, "' is of type '", type.substr(0, 40),
                               "', which is not supported here; want function, or start the server "
                               "with --ignore-unknown-fields, which leaves it out"));
    PINION_ASSIGN(std::string name, ReadString(tool, "name", where));
    Json function(Json::Object{{"name", std::move(name)}});
    for (const char* key : {"description", "parameters", "strict"})
      if (Given(tool, key)) function.Set(key, *tool.Find(key));
    tools.Append(Json(Json::Object{{"type", "function"}, {"function", std::move(function)}}));
  }
  chat.Set("tools", std::move(tools));
  return {};
}

Json NamedChoice(std::string name) {
  return Json(Json::Object{{"type", "function"},
                           {"function", Json(Json::Object{{"name", std::move(name)}})}});
}

// The other tools are not shown to the model.
Checked AllowTools(const Json& choice, Json& chat) {
  PINION_ASSIGN(AllowedTools allowed, ReadAllowedTools(choice, "tool_choice", chat.Find("tools")));
  chat.Set("tools", std::move(allowed.tools));
  chat.Set("tool_choice", std::move(allowed.mode));
  return {};
}

Checked AddToolChoiceOfResponses(const Json& body, Json& chat) {
  const Json* choice = body.Find("tool_choice");
  if (!choice || choice->is_null()) return {};
  if (!choice->is_object()) {
    chat.Set("tool_choice", *choice);
    return {};
  }
  PINION_ASSIGN(const std::string type, ReadString(*choice, "type", "tool_choice"));
  if (type == "allowed_tools") return AllowTools(*choice, chat);
  if (type != "function")
    return Bad("tool_choice.type", StrCat("'tool_choice.type' is '", type.substr(0, 40),
                                          "', want function or allowed_tools"));
  PINION_ASSIGN(std::string name, ReadString(*choice, "name", "tool_choice"));
  chat.Set("tool_choice", NamedChoice(std::move(name)));
  return {};
}

// `text.verbosity` is a wish, which no template here knows: the Response repeats it.
Checked AddFormat(const Json& body, Json& chat) {
  const Json* text = body.Find("text");
  if (!text || text->is_null()) return {};
  if (!text->is_object()) return Bad("text", "'text' must be an object");
  const Json* format = text->Find("format");
  if (!format || format->is_null()) return {};
  PINION_ASSIGN(const std::string type, ReadString(*format, "type", "text.format"));
  if (type == "text") return {};
  if (type == "json_object") {
    chat.Set("response_format", *format);
    return {};
  }
  const Json* schema = format->Find("schema");
  if (type != "json_schema" || !schema || !schema->is_object())
    return Bad("text.format",
               StrCat("'text.format' is ", Excerpt(*format, 100),
                      ", want type text, json_object, or json_schema with an object as 'schema'"));
  chat.Set(
      "response_format",
      Json(Json::Object{{"type", type}, {"json_schema", Json(Json::Object{{"schema", *schema}})}}));
  return {};
}

// Thoughts are shown as they are: a summary would be another model's work.
Checked AddReasoning(const Json& body, Json& chat) {
  const Json* reasoning = body.Find("reasoning");
  if (!reasoning || reasoning->is_null()) return {};
  if (!reasoning->is_object()) return Bad("reasoning", "'reasoning' must be an object");
  PINION_ASSIGN(std::string effort, Get<std::string>(*reasoning, "effort", ""));
  if (!effort.empty()) chat.Set("reasoning_effort", std::move(effort));
  return {};
}

// Of what `include` can name, only log-probabilities exist here; what belongs to other tools and
// inputs is never missing, and thoughts are sent in the clear.
Checked AddIncluded(const Json& body, Json& chat) {
  constexpr std::string_view kLogprobs = "message.output_text.logprobs";
  static const std::vector<std::string> kAbsent = {
      "code_interpreter_call.outputs", "computer_call_output.output.image_url",
      "file_search_call.results",      "message.input_image.image_url",
      "reasoning.encrypted_content",   "web_search_call.action.sources",
      "web_search_call.results",
  };
  bool logprobs = Given(body, "top_logprobs");
  PINION_ASSIGN(const int top, Get<int>(body, "top_logprobs", 0));
  if (const Json* include = body.Find("include"); include && !include->is_null()) {
    if (!include->is_array()) return Bad("include", "'include' must be a list");
    for (const Json& name : include->array()) {
      const std::string text = name.is_string() ? name.string() : "";
      if (text == kLogprobs)
        logprobs = true;
      else if (!Holds(kAbsent, text))
        return Bad("include", StrCat("'include' holds ", Excerpt(name, 100), ", want ", kLogprobs,
                                     " or ", Join(kAbsent, ", ")));
    }
  }
  if (!logprobs) return {};
  chat.Set("logprobs", true);
  chat.Set("top_logprobs", top);
  return {};
}

Checked CheckRest(const Json& body) {
  PINION_ASSIGN(const std::string truncation, Get<std::string>(body, "truncation", "disabled"));
  if (truncation != "auto" && truncation != "disabled")
    return Bad("truncation", StrCat("'truncation' is '", truncation.substr(0, 40),
                                    "', want disabled or auto (which drops nothing here)"));
  return {};
}

}  // namespace

ApiResult<TranslatedBody> ChatBodyOfResponses(const Json& body) {
  Json chat = SharedFields(body, Api::kResponses, Api::kChat);
  PINION_TRY(AddLengthOfResponses(body, chat));
  PINION_TRY(AddInput(body, chat));
  PINION_TRY(AddToolsOfResponses(body, chat));
  PINION_TRY(AddToolChoiceOfResponses(body, chat));
  PINION_TRY(AddFormat(body, chat));
  PINION_TRY(AddReasoning(body, chat));
  PINION_TRY(AddIncluded(body, chat));
  PINION_TRY(CheckRest(body));
  PINION_ASSIGN(std::string shown, ShownByResponse(body));
  TranslatedBody read{std::move(chat), std::move(shown)};
  read.renamed = {{"response_format", "text.format"}};
  return read;
}

void NameAsResponses(GenerationRequest& request) {
  if (request.max_tokens_given) request.max_tokens_name = "max_output_tokens";
}

}  // namespace pinion
