// Calls that are JSON, or a name and JSON: Hermes and Qwen, Llama 3, Mistral, Granite.

#include <algorithm>
#include <utility>

#include "engine/base/strings.h"
#include "engine/serve/output_format.h"

namespace pinion {
namespace {

// Arguments are an object, or the text of one; a tool without any may have none.
std::optional<std::string> ArgumentsOf(const Json& call) {
  const Json* arguments = call.Find("arguments");
  if (!arguments) arguments = call.Find("parameters");
  if (!arguments || arguments->is_null()) return "{}";
  if (arguments->is_object()) return arguments->Dump();
  if (!arguments->is_string()) return {};
  const auto parsed = Json::Parse(arguments->string());
  if (!parsed || !parsed->is_object()) return {};
  return arguments->string();
}

std::optional<ToolCall> CallOf(const Json& json) {
  const Json* name = json.Find("name");
  if (!name || !name->is_string() || name->string().empty()) return {};
  auto arguments = ArgumentsOf(json);
  if (!arguments) return {};
  return ToolCall{name->string(), std::move(*arguments)};
}

// The end of the JSON value that `text` begins with: at the bracket that closes the first one.
size_t EndOfValue(std::string_view text) {
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && (depth == 0 || --depth == 0)) return i + 1;
  }
  return text.size();
}

// Takes `mark` from the front of `text`, if that is there.
bool Take(std::string_view& text, std::string_view mark) {
  if (!text.starts_with(mark)) return false;
  text.remove_prefix(mark.size());
  return true;
}

// Takes the JSON object that `text` begins with.
std::optional<std::string> TakeObject(std::string_view& text) {
  const size_t end = EndOfValue(text);
  const auto json = Json::Parse(text.substr(0, end));
  if (!json || !json->is_object()) return {};
  text.remove_prefix(end);
  return json->Dump();
}

// Mistral's names: "f", "f[ARGS]", "f[CALL_ID]123456789[ARGS]".
std::string_view NameBefore(std::string_view head) {
  return Trim(head.substr(0, std::min(head.find("[CALL_ID]"), head.find("[ARGS]"))));
}

}  // namespace

std::optional<std::vector<ToolCall>> ReadCallList(std::string_view body, const KnownTools&) {
  const auto list = Json::Parse(Trim(body));
  if (!list || !list->is_array() || list->array().empty()) return {};
  std::vector<ToolCall> calls;
  for (const Json& item : list->array()) {
    auto call = CallOf(item);
    if (!call) return {};
    calls.push_back(std::move(*call));
  }
  return calls;
}

std::optional<std::vector<ToolCall>> ReadMistralCalls(std::string_view body,
                                                      const KnownTools& tools) {
  body = Trim(body);
  if (body.starts_with('[')) return ReadCallList(body, tools);
  std::vector<ToolCall> calls;
  for (; !body.empty(); body = Trim(body)) {
    const std::string_view head = body.substr(0, body.find('{'));
    const std::string_view name = NameBefore(head);
    if (name.empty()) return {};
    body.remove_prefix(head.size());
    auto arguments = TakeObject(body);
    if (!arguments) return {};
    calls.push_back({std::string(name), std::move(*arguments)});
    body = Trim(body);
    Take(body, "[TOOL_CALLS]");
  }
  if (calls.empty()) return {};
  return calls;
}

std::optional<std::vector<ToolCall>> ReadHermesCalls(std::string_view body, const KnownTools&) {
  const auto json = Json::Parse(Trim(body));
  if (!json) return {};
  auto call = CallOf(*json);
  if (!call) return {};
  return std::vector<ToolCall>{std::move(*call)};
}

std::optional<std::vector<ToolCall>> ReadLlamaCalls(std::string_view body,
                                                    const KnownTools& tools) {
  std::vector<ToolCall> calls;
  for (body = Trim(body); !body.empty(); body = Trim(body)) {
    const size_t end = EndOfValue(body);
    const auto json = Json::Parse(body.substr(0, end));
    auto call = json ? CallOf(*json) : std::nullopt;
    if (!call || !tools.Has(call->name)) return {};
    calls.push_back(std::move(*call));
    body = Trim(body.substr(end));
    if (body.starts_with(';')) body.remove_prefix(1);
  }
  if (calls.empty()) return {};
  return calls;
}

}  // namespace pinion
