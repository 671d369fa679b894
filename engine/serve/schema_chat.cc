// Reads conversations: messages as templates expect them.

#include <string>
#include <utility>
#include <vector>

#include "engine/base/json_text.h"
#include "engine/base/strings.h"
#include "engine/serve/field_readers.h"

namespace pinion {
namespace {

// The text of a part: also of one that is in the form of Responses, and of a refusal that a client
// sends back.
const Json* PartText(const Json& part, const std::string& type) {
  const bool is_text = type == "text" || type == "input_text" || type == "output_text";
  const Json* text = is_text ? part.Find("text") : type == "refusal" ? part.Find(type) : nullptr;
  return text && text->is_string() ? text : nullptr;
}

// A part as templates know it: of type text, with whatever else its client says of it.
ApiResult<Json> ReadPart(const Json& part, const std::string& param) {
  if (part.is_string()) return part;
  const Json* type = part.Find("type");
  if (!type || !type->is_string())
    return Bad(param, StrCat("'", param, "' has a part without a type, want \"text\""));
  const Json* text = PartText(part, type->string());
  if (!text)
    return Bad(param, StrCat("'", param, "' has a part of type ", Excerpt(*type),
                             "; only text parts with a text are supported"));
  Json read(Json::Object{{"type", "text"}, {"text", *text}});
  for (const auto& [name, value] : part.object())
    if (name != "type" && name != "text" && name != "refusal")
      read.object().emplace_back(name, value);
  return read;
}

// A string, or parts: templates get them as they are or, if they are written for strings, joined.
ApiResult<Json> ReadContent(const Json* content, const std::string& where) {
  if (!content || content->is_null()) return Json("");
  if (content->is_string()) return *content;
  const std::string param = where + ".content";
  if (!content->is_array())
    return Bad(param, StrCat("'", param, "' is ", Excerpt(*content),
                             ", want a string or a list of text parts"));
  Json parts = Json::MakeArray();
  bool typed = !content->array().empty();
  for (const Json& part : content->array()) {
    typed = typed && !part.is_string();
    PINION_ASSIGN(Json read, ReadPart(part, param));
    parts.Append(std::move(read));
  }
  // A string among them has no members that a template could want.
  return typed ? std::move(parts) : Json(TextOfContent(parts));
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

// Clients send an answer's message back as they keep it, with its empty members, which templates
// would take for something ("'tool_calls' in message").
void DropEmptyFields(Json& message) {
  std::erase_if(message.object(), [](const auto& field) {
    const auto& [key, value] = field;
    return value.is_null() || (key == "tool_calls" && value.is_array() && value.array().empty());
  });
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
    DropEmptyFields(message);
    PINION_ASSIGN(Json content, ReadContent(item.Find("content"), where));
    message.Set("content", std::move(content));
    ParseToolArguments(message);
    messages.Append(std::move(message));
  }
  return messages;
}

// Fields that templates know by these names; chat_template_kwargs goes before them, as in vLLM.
ApiResult<void> AddTemplateFields(const Json& body, Conversation& chat) {
  std::vector<Json::Object> kwargs(1);
  if (const Json* documents = body.Find("documents"); documents && !documents->is_null()) {
    if (!documents->is_array()) return Bad("documents", "'documents' must be a list");
    kwargs[0].emplace_back("documents", *documents);
  }
  if (Given(body, "reasoning_effort")) {
    PINION_ASSIGN(std::string effort, Get<std::string>(body, "reasoning_effort", ""));
    kwargs[0].emplace_back("enable_thinking", effort != "none");
    kwargs[0].emplace_back("reasoning_effort", std::move(effort));
  }
  if (kwargs[0].empty()) return {};
  if (chat.template_kwargs.is_object()) kwargs.push_back(std::move(chat.template_kwargs.object()));
  chat.template_kwargs = MergeObjects(std::move(kwargs));
  return {};
}

// As vLLM: templates get functions with names alone.
ApiResult<void> CheckTools(const Json& tools) {
  if (!tools.is_array()) return Bad("tools", "'tools' must be a list");
  for (size_t i = 0; i < tools.array().size(); ++i) {
    const Json& tool = tools.array()[i];
    const std::string where = StrCat("tools[", i, "]");
    const Json* type = tool.Find("type");
    const Json* function = tool.Find("function");
    const Json* name = function ? function->Find("name") : nullptr;
    const bool is_function = !type || *type == Json("function");
    if (!is_function || !name || !name->is_string() || name->string().empty())
      return Bad(where,
                 StrCat("'", where, "' is ", Excerpt(tool, 100), ", want a function with a name"));
    const Json* parameters = function->Find("parameters");
    if (parameters && !parameters->is_null() && !parameters->is_object())
      return Bad(where, StrCat("'", where, ".function.parameters' is ", Excerpt(*parameters),
                               ", want a JSON Schema, an object"));
  }
  return {};
}

}  // namespace

std::string TextOfContent(const Json& content) {
  if (content.is_string()) return content.string();
  std::vector<std::string> texts;
  for (const Json& part : content.array())
    texts.push_back(part.is_string() ? part.string() : part.Find("text")->string());
  return Join(texts, "\n");
}

ApiResult<Conversation> ReadConversation(const Json& body) {
  Conversation chat;
  PINION_ASSIGN(chat.messages, ReadMessages(body));
  if (const Json* choice = body.Find("tool_choice");
      choice && !choice->is_null() && !choice->is_string() && !choice->is_object())
    return Bad("tool_choice", StrCat("'tool_choice' is ", Excerpt(*choice),
                                     ", want \"auto\", \"none\", \"required\" or an object"));
  if (const Json* tools = body.Find("tools"); tools && !tools->is_null()) {
    PINION_TRY(CheckTools(*tools));
    const Json* choice = body.Find("tool_choice");
    const bool wanted = !choice || !choice->is_string() || choice->string() != "none";
    PINION_ASSIGN(auto allowed, ReadAllowedChoice(choice, tools));
    if (wanted && !tools->array().empty()) chat.tools = *tools;
    if (allowed) chat.tools = std::move(allowed->tools);
  }
  if (const Json* kwargs = body.Find("chat_template_kwargs"); kwargs && !kwargs->is_null()) {
    if (!kwargs->is_object())
      return Bad("chat_template_kwargs", "'chat_template_kwargs' must be an object");
    chat.template_kwargs = *kwargs;
  }
  PINION_ASSIGN(chat.own_template, Get<std::string>(body, "chat_template", ""));
  PINION_TRY(AddTemplateFields(body, chat));
  PINION_ASSIGN(chat.add_generation_prompt, Get<bool>(body, "add_generation_prompt", true));
  PINION_ASSIGN(chat.continue_final_message, Get<bool>(body, "continue_final_message", false));
  if (chat.continue_final_message && chat.add_generation_prompt &&
      Given(body, "add_generation_prompt"))
    return Bad("continue_final_message",
               "'continue_final_message' and 'add_generation_prompt' cannot both be true");
  if (chat.continue_final_message) chat.add_generation_prompt = false;
  return chat;
}

}  // namespace pinion
