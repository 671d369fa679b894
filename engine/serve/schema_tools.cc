// Reads `tool_choice`: which tools must be called, and as which JSON.

#include <string>
#include <utility>

#include "engine/base/json_text.h"
#include "engine/base/strings.h"
#include "engine/serve/field_readers.h"

namespace pinion {
namespace {

constexpr const char* kField = "tool_choice";

struct Tool {
  std::string name;
  Json parameters;  // a schema of objects
};

ApiResult<std::vector<Tool>> ReadTools(const Json& tools) {
  std::vector<Tool> read;
  if (!tools.is_array()) return read;
  for (const Json& tool : tools.array()) {
    const Json* function = tool.Find("function");
    const Json* name = function ? function->Find("name") : nullptr;
    if (!name || !name->is_string() || name->string().empty())
      return Bad("tools", StrCat("'tools' holds ", Excerpt(tool, 100),
                                 ", want a function with a name if one must be called"));
    const Json* parameters = function->Find("parameters");
    Json schema = parameters && parameters->is_object() ? *parameters : Json::MakeObject();
    if (!schema.Find("type")) schema.Set("type", "object");
    read.push_back({name->string(), std::move(schema)});
  }
  return read;
}

// Moves the definitions of a tool's schema to the top of the whole, where its references look.
ApiResult<void> MoveDefinitions(const char* key, Tool& tool, Json& whole) {
  const Json* own = tool.parameters.Find(key);
  if (!own || !own->is_object()) return {};
  Json all = whole.Find(key) ? *whole.Find(key) : Json::MakeObject();
  for (const auto& [name, schema] : own->object()) {
    const Json* other = all.Find(name);
    if (other && other->Dump() != schema.Dump())
      return Bad("tools", StrCat("'tools' have two definitions of '", name.substr(0, 100),
                                 "' that differ; name one of them otherwise"));
    if (!other) all.Set(name, schema);
  }
  whole.Set(key, std::move(all));
  Json::Object& fields = tool.parameters.object();
  std::erase_if(fields, [key](const auto& field) { return field.first == key; });
  return {};
}

// A list of calls of any of the tools.
ApiResult<Json> CallsSchema(std::vector<Tool> tools, bool parallel) {
  Json whole = Json::MakeObject();
  Json any = Json::MakeArray();
  for (Tool& tool : tools) {
    PINION_TRY(MoveDefinitions("$defs", tool, whole));
    PINION_TRY(MoveDefinitions("definitions", tool, whole));
    Json properties = Json::MakeObject();
    properties.Set("name", Json(Json::Object{{"const", tool.name}}));
    properties.Set("parameters", std::move(tool.parameters));
    Json call = Json::MakeObject();
    call.Set("type", "object");
    call.Set("properties", std::move(properties));
    call.Set("required", Json(Json::Array{"name", "parameters"}));
    call.Set("additionalProperties", false);
    any.Append(std::move(call));
  }
  whole.Set("type", "array");
  whole.Set("minItems", 1);
  if (!parallel) whole.Set("maxItems", 1);
  whole.Set("items", Json(Json::Object{{"anyOf", std::move(any)}}));
  return whole;
}

// The name in {"type": "function", "function": {"name": ...}}; empty if that is not what it is.
std::string NamedTool(const Json& choice) {
  const Json* function = choice.Find("function");
  const Json* name = function ? function->Find("name") : nullptr;
  return name && name->is_string() ? name->string() : "";
}

}  // namespace

ApiResult<void> ReadToolChoice(const Json& body, GenerationRequest& request) {
  const Json* choice = body.Find(kField);
  if (!choice || choice->is_null()) return {};
  if (choice->is_string() && (choice->string() == "auto" || choice->string() == "none")) return {};
  const bool required = choice->is_string() && choice->string() == "required";
  const std::string name = NamedTool(*choice);
  if (!required && name.empty())
    return Bad(kField, StrCat("'tool_choice' is ", Excerpt(*choice, 100),
                              ", want \"auto\", \"none\", \"required\" or a function's name"));
  PINION_ASSIGN(std::vector<Tool> tools, ReadTools(request.conversation.tools));
  if (tools.empty()) return Bad(kField, "'tool_choice' wants a call, but 'tools' has no tools");
  if (request.grammar)
    return Bad(kField, StrCat("'tool_choice' and '", request.grammar_field,
                              "' both constrain the answer; send one of them"));
  request.grammar_field = kField;
  request.output.forced = ForcedCall{name};
  if (required) {
    PINION_ASSIGN(const Json schema, CallsSchema(std::move(tools), request.output.parallel));
    request.grammar = Grammar{"json", schema.Dump()};
    return {};
  }
  for (const Tool& tool : tools)
    if (tool.name == name) request.grammar = Grammar{"json", tool.parameters.Dump()};
  if (request.grammar) return {};
  return Bad(kField,
             StrCat("'tool_choice' names '", name.substr(0, 100), "', which is none of the tools"));
}

}  // namespace pinion
