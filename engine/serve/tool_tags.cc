// Calls whose arguments are marked one by one and have no quotes: Qwen3-Coder, GLM, DeepSeek-V3.2.

#include <utility>

#include "engine/base/strings.h"
#include "engine/serve/output_format.h"

namespace pinion {
namespace {

constexpr size_t kNone = std::string_view::npos;

// Takes what precedes `mark`, and the mark itself; unset if it does not come.
std::optional<std::string_view> TakeUntil(std::string_view& text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == kNone) return {};
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(at + mark.size());
  return taken;
}

bool TakeMark(std::string_view& text, std::string_view mark) {
  text = Trim(text);
  if (!text.starts_with(mark)) return false;
  text.remove_prefix(mark.size());
  return true;
}

// What is no JSON is a string.
Json JsonOrText(std::string_view text) {
  // In a list, as it will be in an object: it must not be nested too deeply to be read there.
  auto list = Json::Parse(StrCat('[', Trim(text), ']'));
  if (list && list->array().size() == 1) return std::move(list->array().front());
  // As Python writes them.
  if (Trim(text) == "True") return true;
  if (Trim(text) == "False") return false;
  if (Trim(text) == "None") return nullptr;
  return Json(text);
}

// A value as its parameter's type says.
Json ValueOf(const KnownTools& tools, const std::string& tool, const std::string& parameter,
             std::string_view text) {
  if (tools.IsText(tool, parameter)) return Json(text);
  return JsonOrText(text);
}

// The parameter that `text` begins with, whose mark says whether it is a string; false if it is
// none.
bool TakeDsmlParameter(std::string_view& text, Json& arguments) {
  const auto key = TakeUntil(text, "\" string=\"");
  const auto is_string = TakeUntil(text, "\">");
  const auto value = TakeUntil(text, "</｜DSML｜parameter>");
  if (!key || !is_string || !value) return false;
  if (*is_string != "true" && *is_string != "false") return false;
  arguments.object().emplace_back(*key, *is_string == "true" ? Json(*value) : JsonOrText(*value));
  return true;
}

// Qwen3-Coder sets values on lines of their own.
std::string_view WithoutLineEnds(std::string_view text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::optional<std::vector<ToolCall>> ReadCoderCalls(std::string_view body,
                                                    const KnownTools& tools) {
  std::vector<ToolCall> calls;
  while (TakeMark(body, "<function=")) {
    const auto name = TakeUntil(body, ">");
    if (!name || Trim(*name).empty()) return {};
    const std::string tool(Trim(*name));
    Json arguments = Json::MakeObject();
    while (TakeMark(body, "<parameter=")) {
      const auto key = TakeUntil(body, ">");
      const auto value = key ? TakeUntil(body, "</parameter>") : std::nullopt;
      if (!value) return {};
      const std::string parameter(Trim(*key));
      arguments.object().emplace_back(parameter,
                                      ValueOf(tools, tool, parameter, WithoutLineEnds(*value)));
    }
    if (!TakeMark(body, "</function>")) return {};
    calls.push_back({tool, arguments.Dump()});
  }
  if (calls.empty() || !Trim(body).empty()) return {};
  return calls;
}

std::optional<std::vector<ToolCall>> ReadGlmCalls(std::string_view body, const KnownTools& tools) {
  constexpr std::string_view kKey = "<arg_key>";
  const size_t key_at = body.find(kKey);
  const std::string tool(Trim(body.substr(0, key_at)));
  if (tool.empty() || tool.find_first_of("<>\n{") != std::string::npos) return {};
  body.remove_prefix(key_at == kNone ? body.size() : key_at);
  Json arguments = Json::MakeObject();
  while (TakeMark(body, kKey)) {
    const auto key = TakeUntil(body, "</arg_key>");
    if (!key || !TakeMark(body, "<arg_value>")) return {};
    const auto value = TakeUntil(body, "</arg_value>");
    if (!value) return {};
    const std::string parameter(Trim(*key));
    arguments.object().emplace_back(parameter, ValueOf(tools, tool, parameter, *value));
  }
  if (!Trim(body).empty()) return {};
  return std::vector<ToolCall>{{tool, arguments.Dump()}};
}

std::optional<std::vector<ToolCall>> ReadDsmlCalls(std::string_view body, const KnownTools&) {
  std::vector<ToolCall> calls;
  while (TakeMark(body, "<｜DSML｜invoke name=\"")) {
    const auto name = TakeUntil(body, "\">");
    if (!name || name->empty()) return {};
    Json arguments = Json::MakeObject();
    while (TakeMark(body, "<｜DSML｜parameter name=\""))
      if (!TakeDsmlParameter(body, arguments)) return {};
    if (!TakeMark(body, "</｜DSML｜invoke>")) return {};
    calls.push_back({std::string(*name), arguments.Dump()});
  }
  if (calls.empty() || !Trim(body).empty()) return {};
  return calls;
}

}  // namespace pinion
