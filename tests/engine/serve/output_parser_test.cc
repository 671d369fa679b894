#include "engine/serve/output_parser.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace pinion {
namespace {

Json WeatherTools() {
  return *Json::Parse(
      R"([{"type":"function","function":{"name":"weather","parameters":{"type":"object",)"
      R"("properties":{"city":{"type":"string"},"days":{"type":"integer"},)"
      R"("exact":{"type":"boolean"},"parts":{"type":"array"}}}}},)"
      R"({"type":"function","function":{"name":"time"}}])");
}

OutputRules Rules(const std::string& calls, const std::string& thoughts = "none") {
  const OutputFormat format = *ChooseOutputFormat(calls, thoughts, {});
  return {.calls = format.calls,
          .thoughts = format.thoughts,
          .tools = std::make_shared<const KnownTools>(WeatherTools())};
}

// What a client puts together of an answer that comes in these pieces.
ParsedOutput Parse(const OutputRules& rules, const std::vector<std::string>& pieces) {
  OutputParser parser(rules);
  ParsedOutput whole;
  for (size_t i = 0; i < pieces.size(); ++i) {
    ParsedOutput part = parser.Push(pieces[i], i + 1 == pieces.size());
    whole.content += part.content;
    whole.reasoning += part.reasoning;
    for (ToolCall& call : part.calls) whole.calls.push_back(std::move(call));
  }
  return whole;
}

std::string Show(const ParsedOutput& parsed) {
  std::string text = "content [" + parsed.content + "] reasoning [" + parsed.reasoning + "]";
  for (const ToolCall& call : parsed.calls) text += " " + call.name + call.arguments;
  return text;
}

// The answer's parts, whichever two pieces it comes in, and byte by byte.
std::string Parsed(const OutputRules& rules, const std::string& text) {
  std::string shown = Show(Parse(rules, {text}));
  std::vector<std::string> bytes;
  for (size_t cut = 0; cut < text.size(); ++cut) {
    EXPECT_EQ(Show(Parse(rules, {text.substr(0, cut), text.substr(cut)})), shown) << "at " << cut;
    bytes.push_back(text.substr(cut, 1));
  }
  bytes.emplace_back();
  EXPECT_EQ(Show(Parse(rules, bytes)), shown) << "byte by byte";
  return shown;
}

TEST(OutputParser, ReadsHermesCallsBetweenText) {
  EXPECT_EQ(Parsed(Rules("hermes"),
                   "Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
                   "\"Bern\", \"days\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": \"time\", "
                   "\"arguments\": {}}\n</tool_call>\n"),
            "content [Let me see.] reasoning [] weather{\"city\":\"Bern\",\"days\":2} time{}");
}

TEST(OutputParser, TakesAMarkInsideAStringForText) {
  EXPECT_EQ(Parsed(Rules("hermes"),
                   R"(<tool_call>{"name":"weather","arguments":{"city":"\"</tool_call>\\"}})"
                   "</tool_call>ok"),
            "content [ok] reasoning [] weather{\"city\":\"\\\"</tool_call>\\\\\"}");
}

TEST(OutputParser, ReadsACallWhoseEndMarkDidNotCome) {
  EXPECT_EQ(Parsed(Rules("hermes"), "<tool_call>{\"name\":\"time\",\"arguments\":{}}"),
            "content [] reasoning [] time{}");
}

TEST(OutputParser, GivesBackByteForByteWhatIsNoCall) {
  for (const char* calls : {"hermes", "llama3_json"}) {
    for (const std::string text :
         {" a <tool_call> {\"name\": 3} </tool_call> \n", "<tool_call>{\"name\":\"time\",",
          "<tool_call>{\"name\":\"time\",\"arguments\":[1]}</tool_call>", "a <tool_cal", " \n\n",
          "{\"name\": \"unknown\"}", "{\"answer\": 42} ", "<|python_tag|>print(1)", ""})
      EXPECT_EQ(Parsed(Rules(calls), text), "content [" + text + "] reasoning []") << calls;
  }
}

TEST(OutputParser, ReadsACallAfterOneThatIsNone) {
  EXPECT_EQ(Parsed(Rules("hermes"),
                   "<tool_call>{}</tool_call><tool_call>{\"name\":\"time\"}</tool_call>"),
            "content [<tool_call>{}</tool_call>] reasoning [] time{}");
}

TEST(OutputParser, ReadsLlamasBareAndMarkedCalls) {
  EXPECT_EQ(Parsed(Rules("llama3_json"),
                   "\n{\"name\": \"weather\", \"parameters\": {\"city\": \"a;}\"}}; "
                   "{\"name\": \"time\", \"parameters\": {}}"),
            "content [] reasoning [] weather{\"city\":\"a;}\"} time{}");
  EXPECT_EQ(Parsed(Rules("llama3_json"), "Now: <|python_tag|>{\"name\": \"time\"}"),
            "content [Now:] reasoning [] time{}");
}

TEST(OutputParser, KeepsOnlyTheFirstCallIfTheClientWantsOne) {
  OutputRules rules = Rules("hermes");
  rules.parallel = false;
  EXPECT_EQ(Parsed(rules,
                   "<tool_call>{\"name\":\"time\"}</tool_call>"
                   "<tool_call>{\"name\":\"weather\"}</tool_call>"),
            "content [] reasoning [] time{}");
}

TEST(OutputParser, SplitsReasoningFromTheAnswer) {
  const OutputRules rules = Rules("none", "deepseek_r1");
  EXPECT_EQ(Parsed(rules, "<think>\nIs it < 3?\n</think>\n\nYes.\n"),
            "content [Yes.\n] reasoning [Is it < 3?]");
  EXPECT_EQ(Parsed(rules, " No <think>at all</think>"),
            "content [ No <think>at all</think>] reasoning []");
  EXPECT_EQ(Parsed(rules, "<think>without an end"), "content [] reasoning [without an end]");
  OutputRules inside = rules;
  inside.starts_in_thought = true;
  EXPECT_EQ(Parsed(inside, "\nwell</think>\nYes"), "content [Yes] reasoning [well]");
}

TEST(OutputParser, LeavesReasoningOutIfTheClientDoesNotWantIt) {
  OutputRules rules = Rules("none", "deepseek_r1");
  rules.shows_thoughts = false;
  EXPECT_EQ(Parsed(rules, "<think>so</think>Yes"), "content [Yes] reasoning []");
}

TEST(OutputParser, ReadsCallsAfterReasoningButNotInIt) {
  EXPECT_EQ(Parsed(Rules("hermes", "qwen3"),
                   "<think>\n<tool_call>{\"name\":\"weather\"}</tool_call>?\n</think>\n\n"
                   "<tool_call>{\"name\":\"time\"}</tool_call>"),
            "content [] reasoning [<tool_call>{\"name\":\"weather\"}</tool_call>?] time{}");
}

TEST(OutputFormat, IsChosenByTheTemplate) {
  const auto names = [](const char* chat_template) {
    const OutputFormat format = *ChooseOutputFormat("auto", "auto", chat_template);
    return std::string(format.calls ? format.calls->name : "none") + " " +
           std::string(format.thoughts ? format.thoughts->name : "none");
  };
  EXPECT_EQ(names("{{ messages }}"), "none none");
  EXPECT_EQ(names("within <tool_call></tool_call> ... '</think>'"), "hermes deepseek_r1");
  EXPECT_EQ(names("{\"name\": function name, \"parameters\": dictionary of argument name and its"),
            "llama3_json none");
}

TEST(OutputFormat, OfAnUnknownNameIsRefusedWithTheKnownOnes) {
  const auto chosen = ChooseOutputFormat("gpt", "auto", {});
  ASSERT_FALSE(chosen);
  EXPECT_EQ(chosen.error().message.find("--tool-call-parser is 'gpt', want one of auto, none, "),
            0u);
  EXPECT_FALSE(ChooseOutputFormat("none", "hermes", {}));
}

}  // namespace
}  // namespace pinion
