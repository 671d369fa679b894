#include <algorithm>
#include <memory>
#include <string>

#include "engine/base/check.h"
#include "engine/serve/answer_parser.h"
#include "tests/fuzz/fuzz.h"

namespace pinion::fuzz {
namespace {

const char* const kCalls[] = {"none",          "hermes",  "llama3_json", "qwen3_coder",
                              "glm45",         "mistral", "granite",     "deepseek_v3",
                              "functiongemma", "gemma4",  "pythonic",    "deepseek_v32"};
const char* const kThoughts[] = {"none", "deepseek_r1", "openai_gptoss"};

std::shared_ptr<const KnownTools> Tools() {
  static const auto tools = std::make_shared<const KnownTools>(
      *Json::Parse(R"([{"type":"function","function":{"name":"f","parameters":{"type":"object",)"
                   R"("properties":{"a":{"type":"string"},"b":{"type":"integer"}}}}}])"));
  return tools;
}

ParsedOutput Parse(const OutputRules& rules, std::string_view text, size_t step) {
  const auto parser = MakeAnswerParser(rules);
  if (!parser) return {std::string(text), "", {}};
  ParsedOutput whole;
  for (bool last = false; !last;) {
    last = text.size() <= step;
    whole.Append(parser->Push(text.substr(0, step), last));
    text.remove_prefix(std::min(step, text.size()));
  }
  return whole;
}

void CheckForced(std::string_view text) {
  for (const char* name : {"", "f"}) {
    const OutputRules rules{.tools = Tools(), .forced = ForcedCall{name}};
    const ParsedOutput whole = Parse(rules, text, text.size() + 1);
    for (const size_t step : {size_t{1}, size_t{7}}) {
      const ParsedOutput pieces = Parse(rules, text, step);
      CHECK(pieces.content == whole.content && pieces.calls == whole.calls) << name;
    }
    CHECK(whole.content == text || !whole.calls.empty()) << name;
  }
}

}  // namespace

void Output(std::string_view text) {
  CheckForced(text);
  for (const char* calls : kCalls) {
    for (const char* thoughts : kThoughts) {
      const OutputFormat format = *ChooseOutputFormat(calls, thoughts, {});
      const OutputRules rules{.calls = format.calls, .thoughts = format.thoughts, .tools = Tools()};
      const ParsedOutput whole = Parse(rules, text, text.size() + 1);
      for (const size_t step : {size_t{1}, size_t{7}}) {
        const ParsedOutput pieces = Parse(rules, text, step);
        CHECK(pieces.content == whole.content) << calls;
        CHECK(pieces.reasoning == whole.reasoning) << calls;
        CHECK(pieces.calls == whole.calls) << calls;
      }
      CHECK(whole.content.size() + whole.reasoning.size() <= text.size()) << calls;
      const bool has_channels =
          (rules.calls && rules.calls->harmony) || (rules.thoughts && rules.thoughts->harmony);
      if (!rules.thoughts && !has_channels && whole.calls.empty())
        CHECK(whole.content == text) << calls;
      for (const ToolCall& call : whole.calls) {
        CHECK(!call.name.empty());
        CHECK(call.arguments.starts_with('{')) << call.arguments;
      }
    }
  }
}

}  // namespace pinion::fuzz
