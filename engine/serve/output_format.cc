#include "engine/serve/output_format.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/strings.h"
#include "engine/serve/call_body.h"

namespace pinion {
namespace {

constexpr const char* kHarmony = "<|channel|>";
// From the instructions that their templates give.
constexpr const char* kLlamaJson = "\"parameters\": dictionary of argument name";
constexpr const char* kPythonic = "[func_name1(param";

// In the order in which templates are searched: the more special mark comes first. Of formats that
// are the same under several names the first is chosen.
constexpr auto kCallFormats = std::to_array<CallFormat>({
    {"openai", kHarmony, "", "", false, 0, nullptr, true},
    {"llama3_json", kLlamaJson, "<|python_tag|>", "", true, '{', MakeLlamaBody},
    {"llama4_json", kLlamaJson, "<|python_tag|>", "", true, '{', MakeLlamaBody},
    {"llama4_pythonic", kPythonic, "<|python_start|>", "<|python_end|>", false, '[',
     MakePythonBody},
    {"pythonic", kPythonic, "<|python_start|>", "<|python_end|>", false, '[', MakePythonBody},
    {"qwen3_coder", "<function=", "<tool_call>", "</tool_call>", false, 0, MakeCoderBody},
    {"qwen3_xml", "<function=", "<tool_call>", "</tool_call>", false, 0, MakeCoderBody},
    {"glm45", "<arg_key>", "<tool_call>", "</tool_call>", false, 0, MakeGlmBody},
    {"glm47", "<arg_key>", "<tool_call>", "</tool_call>", false, 0, MakeGlmBody},
    {"mistral", "[TOOL_CALLS]", "[TOOL_CALLS]", "", true, 0, MakeMistralBody},
    {"deepseek_v3", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
     true, 0, MakeDeepSeekBody},
    {"deepseek_v31", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
     true, 0, MakeDeepSeekBody},
    {"deepseek_v32", "<｜DSML｜function_calls>", "<｜DSML｜function_calls>",
     "</｜DSML｜function_calls>", false, 0, MakeDsmlBody},
    {"granite", "<|tool_call|>", "<|tool_call|>", "", true, 0, MakeGraniteBody},
    {"functiongemma", "<start_function_call>", "<start_function_call>", "<end_function_call>",
     false, 0, MakeGemmaBody},
    {"gemma4", "<|tool_call>", "<|tool_call>", "<tool_call|>", false, 0, MakeGemmaBody},
    {"hermes", "<tool_call>", "<tool_call>", "</tool_call>", true, 0, MakeHermesBody},
    {"granite4", "<tool_call>", "<tool_call>", "</tool_call>", true, 0, MakeHermesBody},
});

// The first is the one that templates with its marks are read by.
constexpr auto kThoughtFormats = std::to_array<ThoughtFormat>({
    {"openai_gptoss", "", kHarmony, true, true},
    {"deepseek_r1", "<think>", "</think>", false},
    {"qwen3", "<think>", "</think>", false},
    {"glm45", "<think>", "</think>", false},
    {"glm47", "<think>", "</think>", false},
    {"deepseek_v3", "<think>", "</think>", false},
    {"minimax_m2", "<think>", "</think>", false},
    {"nemotron_v3", "<think>", "</think>", false},
    {"olmo3", "<think>", "</think>", false},
    {"mistral", "[THINK]", "[/THINK]", true},
    {"gemma4", "<|channel>thought", "<channel|>", true},
    {"seed_oss", "<seed:think>", "</seed:think>", false},
});

template <typename Formats>
std::string NamesOf(const Formats& formats) {
  std::string names = "auto, none";
  for (const auto& format : formats) names += StrCat(", ", format.name);
  return names;
}

// The format called `name`; null for "none".
template <typename Formats, typename Asked>
auto Choose(const Formats& formats, const char* flag, const std::string& name, Asked is_asked)
    -> Result<const typename Formats::value_type*> {
  if (name == "none") return nullptr;
  for (const auto& format : formats)
    if (name == "auto" ? is_asked(format) : format.name == name) return &format;
  if (name == "auto") return nullptr;
  return Fail(ErrorCode::kUsage,
              StrCat(flag, " is '", name.substr(0, 100), "', want one of ", NamesOf(formats)));
}

}  // namespace

KnownTools::KnownTools(const Json& tools) {
  if (!tools.is_array()) return;
  for (const Json& tool : tools.array()) {
    const Json* function = tool.Find("function");
    const Json* name = function ? function->Find("name") : nullptr;
    if (!name || !name->is_string()) continue;
    constexpr size_t kNodeBytes = 160;  // of a map or a set, with its string
    std::set<std::string>& text = text_[name->string()];
    std::set<std::string>& others = others_[name->string()];
    bytes_ += 2 * (kNodeBytes + name->string().size());
    const Json* parameters = function->Find("parameters");
    const Json* properties = parameters ? parameters->Find("properties") : nullptr;
    if (!properties || !properties->is_object()) continue;
    for (const auto& [key, schema] : properties->object()) {
      const Json* type = schema.Find("type");
      const bool is_text = type && type->is_string() && type->string() == "string";
      (is_text ? text : others).insert(key);
      bytes_ += kNodeBytes + key.size();
    }
  }
}

bool KnownTools::MayBegin(std::string_view text) const {
  return std::any_of(text_.begin(), text_.end(), [text](const auto& tool) {
    const std::string_view name = tool.first;
    if (name.starts_with(text)) return true;
    if (!text.starts_with(name)) return false;
    const std::string_view behind = Trim(text.substr(name.size()));
    return behind.empty() || behind[0] == '[' || behind[0] == '{';
  });
}

bool KnownTools::IsText(const std::string& tool, const std::string& parameter) const {
  const auto others = others_.find(tool);
  return others == others_.end() || !others->second.contains(parameter);
}

Result<OutputFormat> ChooseOutputFormat(const std::string& calls, const std::string& thoughts,
                                        const std::optional<std::string>& chat_template) {
  const auto has = [&](std::string_view mark) {
    return chat_template && chat_template->find(mark) != std::string::npos;
  };
  OutputFormat chosen;
  PINION_ASSIGN(chosen.calls,
                Choose(kCallFormats, "--tool-call-parser", calls,
                       [&](const CallFormat& format) { return has(format.in_template); }));
  PINION_ASSIGN(chosen.thoughts,
                Choose(kThoughtFormats, "--reasoning-parser", thoughts,
                       [&](const ThoughtFormat& format) { return has(format.end); }));
  return chosen;
}

}  // namespace pinion
