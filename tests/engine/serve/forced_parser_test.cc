#include "engine/serve/forced_parser.h"

#include <gtest/gtest.h>

namespace pinion {
namespace {

ParsedOutput Parse(const std::string& name, std::string_view text, bool parallel = true) {
  OutputRules rules;
  rules.tools = std::make_shared<const KnownTools>(Json());
  rules.parallel = parallel;
  rules.forced = ForcedCall{name};
  const auto parser = MakeAnswerParser(std::move(rules));
  ParsedOutput first = parser->Push(text.substr(0, text.size() / 2), false);
  EXPECT_TRUE(first.content.empty() && first.calls.empty()) << "nothing is certain before the end";
  return parser->Push(text.substr(text.size() / 2), true);
}

TEST(ForcedParser, ANamedToolsArgumentsAreTheWholeText) {
  const auto parsed = Parse("f", R"({"a": [1]})");
  EXPECT_EQ(parsed.calls, (std::vector<ToolCall>{{"f", R"({"a": [1]})"}}));
  EXPECT_EQ(parsed.content, "");
}

TEST(ForcedParser, ARequiredCallIsOneOfAList) {
  const std::string two =
      R"([{"name": "f", "parameters": {"a":1}}, {"name": "g", "parameters": {}}])";
  EXPECT_EQ(Parse("", two).calls, (std::vector<ToolCall>{{"f", R"({"a":1})"}, {"g", "{}"}}));
  EXPECT_EQ(Parse("", two, /*parallel=*/false).calls.size(), 1u);
}

TEST(ForcedParser, WhatWasCutOffIsText) {
  for (const char* name : {"", "f"}) {
    const auto parsed = Parse(name, R"([{"name": "f", "para)");
    EXPECT_TRUE(parsed.calls.empty());
    EXPECT_EQ(parsed.content, R"([{"name": "f", "para)");
  }
}

TEST(ForcedParser, ReasoningBeforeTheCallsIsReasoning) {
  OutputRules rules;
  rules.tools = std::make_shared<const KnownTools>(Json());
  rules.forced = ForcedCall{"f"};
  rules.thoughts = ChooseOutputFormat("none", "qwen3", {})->thoughts;
  rules.starts_in_thought = true;
  const auto parser = MakeAnswerParser(rules);
  const std::string text = "[\"no\" call]</think>\n\n{\"a\": 1}";
  ParsedOutput all;
  for (size_t i = 0; i <= text.size(); ++i) {
    ParsedOutput part = parser->Push(text.substr(i, 1), i == text.size());
    all.reasoning += part.reasoning;
    all.content += part.content;
    all.calls.insert(all.calls.end(), part.calls.begin(), part.calls.end());
  }
  EXPECT_EQ(all.reasoning, "[\"no\" call]");
  EXPECT_EQ(all.calls, (std::vector<ToolCall>{{"f", "{\"a\": 1}"}}));
  EXPECT_EQ(all.content, "");
  rules.shows_thoughts = false;
  EXPECT_EQ(MakeAnswerParser(rules)->Push(text, true).reasoning, "");
}

}  // namespace
}  // namespace pinion
