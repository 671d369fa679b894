// Calls that are JSON: Hermes and Qwen, Llama 3.

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

// Where the JSON value ends that `text` begins with: at the bracket that closes the first one.
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

}  // namespace

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
