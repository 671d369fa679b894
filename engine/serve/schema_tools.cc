// Reads `tool_choice`: which tools may or must be called, and as which JSON.

#include <string>
#include <unordered_set>
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

// The name in {"type": "function", "function": {"name": ...}}; empty if it has another form.
std::string NamedTool(const Json& choice) {
  const Json* function = choice.Find("function");
  const Json* name = function ? function->Find("name") : nullptr;
  return name && name->is_string() ? name->string() : "";
}

using Names = std::unordered_set<std::string>;

Names NamesOf(const Json& tools) {
  Names names;
  for (const Json& tool : tools.array()) names.insert(NamedTool(tool));
  return names;
}

// The names in `allowed`, which are functions in the form of chats or of Responses.
ApiResult<Names> AllowedNames(const Json& allowed, const std::string& where, const Names& all) {
  Names names;
  for (const Json& one : allowed.array()) {
    const Json* function = one.Find("function");
    PINION_ASSIGN(std::string name, ReadString(function ? *function : one, "name", where));
    if (!all.contains(name))
      return Bad(where, StrCat("'", where, "' names '", name.substr(0, 100),
                               "', which is none of the tools"));
    names.insert(std::move(name));
  }
  return names;
}

// The call that must be made: of any tool, or of the one with this name; neither: none.
struct Wanted {
  bool any = false;
  std::string name;
};

ApiResult<Wanted> ReadWanted(const Json& body) {
  const Json* choice = body.Find(kField);
  if (!choice || choice->is_null()) return Wanted{};
  PINION_ASSIGN(const auto allowed, ReadAllowedChoice(choice, body.Find("tools")));
  const std::string mode = allowed ? allowed->mode : choice->is_string() ? choice->string() : "";
  if (mode == "auto" || mode == "none") return Wanted{};
  Wanted wanted{mode == "required", allowed ? "" : NamedTool(*choice)};
  if (!wanted.any && wanted.name.empty())
    return Bad(kField, StrCat("'tool_choice' is ", Excerpt(*choice, 100),
                              ", want \"auto\", \"none\", \"required\", a function's name or "
                              "allowed_tools"));
  return wanted;
}

}  // namespace

ApiResult<AllowedTools> ReadAllowedTools(const Json& allowed, const std::string& where,
                                         const Json* tools) {
  PINION_ASSIGN(std::string mode, ReadString(allowed, "mode", where));
  if (mode != "auto" && mode != "required")
    return Bad(where + ".mode",
               StrCat("'", where, ".mode' is '", mode.substr(0, 40), "', want auto or required"));
  const std::string param = where + ".tools";
  const Json* list = allowed.Find("tools");
  if (!list || !list->is_array() || list->array().empty())
    return Bad(param, StrCat("'", param, "' must be a list of at least one tool"));
  const Json none = Json::MakeArray();
  const Json& all = tools && tools->is_array() ? *tools : none;
  PINION_ASSIGN(const Names names, AllowedNames(*list, param, NamesOf(all)));
  Json kept = Json::MakeArray();
  for (const Json& tool : all.array())
    if (names.contains(NamedTool(tool))) kept.Append(tool);
  return AllowedTools{std::move(mode), std::move(kept)};
}

ApiResult<std::optional<AllowedTools>> ReadAllowedChoice(const Json* choice, const Json* tools) {
  const Json* type = choice ? choice->Find("type") : nullptr;
  if (!type || *type != Json("allowed_tools")) return std::nullopt;
  const std::string where = StrCat(kField, ".allowed_tools");
  const Json* allowed = choice->Find("allowed_tools");
  if (!allowed || !allowed->is_object())
    return Bad(where, StrCat("'", where, "' must be an object"));
  PINION_ASSIGN(AllowedTools read, ReadAllowedTools(*allowed, where, tools));
  return read;
}

ApiResult<void> ReadToolChoice(const Json& body, GenerationRequest& request) {
  PINION_ASSIGN(const Wanted wanted, ReadWanted(body));
  const auto& [required, name] = wanted;
  if (!required && name.empty()) return {};
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
