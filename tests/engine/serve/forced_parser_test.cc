#include "engine/serve/forced_parser.h"

#include <gtest/gtest.h>

#include "engine/base/strings.h"

namespace pinion {
namespace {

constexpr const char* kTwoCalls =
    R"([{"name": "f", "parameters": {"a":"]}"}} , {"name": "g", "parameters": {}}])";

OutputRules Forcing(const std::string& name, bool parallel = true) {
  OutputRules rules;
  rules.tools = std::make_shared<const KnownTools>(Json());
  rules.parallel = parallel;
  rules.forced = ForcedCall{name};
  return rules;
}

std::string Shown(const ParsedOutput& parsed) {
  std::string told = parsed.content;
  for (const ToolCall& call : parsed.calls) told += StrCat("<", call.name, call.arguments, ">");
  return told;
}

// The answer, which is the same in any two pieces and byte by byte.
std::string Forced(const OutputRules& rules, const std::string& text) {
  std::string told = Shown(MakeAnswerParser(rules)->Push(text, true));
  const auto bytes = MakeAnswerParser(rules);
  ParsedOutput slow;
  for (size_t cut = 0; cut < text.size(); ++cut) {
    const auto parser = MakeAnswerParser(rules);
    ParsedOutput whole = parser->Push(text.substr(0, cut), false);
    whole.Append(parser->Push(text.substr(cut), true));
    EXPECT_EQ(Shown(whole), told) << "at " << cut;
    slow.Append(bytes->Push(text.substr(cut, 1), false));
  }
  slow.Append(bytes->Push("", true));
  EXPECT_EQ(Shown(slow), told) << "byte by byte";
  return told;
}

TEST(ForcedParser, ANamedToolsArgumentsAreTheWholeText) {
  EXPECT_EQ(Forced(Forcing("f"), R"( {"a": ["}"]} )"), R"(<f{"a": ["}"]}>)");
}

TEST(ForcedParser, ARequiredCallIsOneOfAList) {
  EXPECT_EQ(Forced(Forcing(""), kTwoCalls), R"(<f{"a":"]}"}><g{}>)");
  EXPECT_EQ(Forced(Forcing("", /*parallel=*/false), kTwoCalls), R"(<f{"a":"]}"}>)");
}

TEST(ForcedParser, ACallWithoutArgumentsIsReadAtTheEnd) {
  EXPECT_EQ(Forced(Forcing(""), R"([{"name": "f"}, {"name": "g"}])"), "<f{}><g{}>");
  EXPECT_EQ(Forced(Forcing("", /*parallel=*/false), R"([{"name": "f"}, {"name": "g"}])"), "<f{}>");
}

TEST(ForcedParser, GivesArgumentsAsTheyCome) {
  const auto named = MakeAnswerParser(Forcing("f"));
  EXPECT_EQ(Shown(named->Push(" ", false)), "");
  EXPECT_EQ(Shown(named->Push("{", false)), "<f{>");
  EXPECT_EQ(Shown(named->Push("\"a\": ", false)), "<\"a\": >");
  EXPECT_EQ(Shown(named->Push("1}", false)), "<1}>");
  const auto required = MakeAnswerParser(Forcing(""));
  EXPECT_EQ(Shown(required->Push(R"([{"name": "f", "parameters":)", false)), "");
  EXPECT_EQ(Shown(required->Push(R"({"a")", false)), R"(<f{"a">)");
  EXPECT_EQ(Shown(required->Push(R"(: 1}}, {"name": "g", "parameters": {)", false)), "<: 1}><g{>");
}

// Every beginning of two calls, as max_tokens may leave them.
TEST(ForcedParser, ACallThatWasCutOffHasTheBeginningOfItsArguments) {
  const std::string two = kTwoCalls, whole = R"(<f{"a":"]}"}><g{}>)";
  for (size_t bytes = 0; bytes < two.size(); ++bytes) {
    const std::string cut = two.substr(0, bytes);
    const std::string told = Forced(Forcing(""), cut);
    const bool has_name = bytes > two.find("\"f") + 2;
    EXPECT_EQ(told.starts_with("<f"), has_name) << cut;
    const std::string without_mark = told.substr(0, told.empty() ? 0 : told.size() - 1);
    EXPECT_TRUE(has_name ? whole.starts_with(without_mark) : told == cut) << told;
  }
  EXPECT_EQ(Forced(Forcing("f"), R"({"a": "x)"), R"(<f{"a": "x>)");
}

TEST(ForcedParser, AnswersThatBreakTheGrammarAreText) {
  for (const char* text : {"", " ", "[", "{}", R"([{"name": 1, "parameters": {}}])", "[1]"})
    EXPECT_EQ(Forced(Forcing(""), text), text);
  for (const char* text : {"", " \n", "[1]", "null"}) EXPECT_EQ(Forced(Forcing("f"), text), text);
}

TEST(ForcedParser, ReasoningBeforeTheCallsIsReasoning) {
  OutputRules rules = Forcing("f");
  rules.thoughts = ChooseOutputFormat("none", "qwen3", {})->thoughts;
  rules.starts_in_thought = true;
  const auto parser = MakeAnswerParser(rules);
  const std::string text = "[\"no\" call]</think>\n\n{\"a\": 1}";
  ParsedOutput all;
  for (size_t i = 0; i <= text.size(); ++i)
    all.Append(parser->Push(text.substr(i, 1), i == text.size()));
  EXPECT_EQ(all.reasoning, "[\"no\" call]");
  EXPECT_EQ(Shown(all), "<f{\"a\": 1}>");
  rules.shows_thoughts = false;
  EXPECT_EQ(MakeAnswerParser(rules)->Push(text, true).reasoning, "");
}

}  // namespace
}  // namespace pinion
