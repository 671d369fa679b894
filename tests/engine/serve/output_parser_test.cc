#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/strings.h"
#include "engine/serve/answer_parser.h"
#include "tests/engine/serve/taken_apart.h"

namespace pinion {
namespace {

TEST(OutputParser, ReadsHermesCallsBetweenText) {
  EXPECT_EQ(Parsed(Rules("hermes"),
                   "Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
                   "\"Bern\", \"days\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": \"time\", "
                   "\"arguments\": {}}\n</tool_call>\n"),
            "content [Let me see.] reasoning [] weather{\"city\": \"Bern\", \"days\": 2} time{}");
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

TEST(OutputParser, GivesArgumentsAsTheyCome) {
  EXPECT_EQ(CallsOf(Rules("hermes"), {"<tool_call>{\"name\": \"time\", \"arguments\": ", "{\"a\"",
                                      ": {}", "}}", "</tool_call>"}),
            (std::vector<std::string>{"", "time:{\"a\"", ":: {}", ":}", ""}));
}

TEST(OutputParser, GivesArgumentsOfSeveralCallsAsTheyCome) {
  const std::vector<std::string> pieces = {"{\"name\": \"time\", \"arguments\": ", "{\"a\"", ": {}",
                                           "}", "} "};
  const std::vector<std::string> given = {"time:{\"a\"", ":: {}", ":}"};
  const auto put = [&](const std::string& before, const std::string& between) {
    std::vector<std::string> all = {before};
    for (int i = 0; i < 2; ++i) {
      all.insert(all.end(), pieces.begin(), pieces.end());
      all.push_back(between);
    }
    return all;
  };
  std::vector<std::string> wanted;
  for (int i = 0; i < 2; ++i) {
    wanted.insert(wanted.end(), {"", ""});
    wanted.insert(wanted.end(), given.begin(), given.end());
    wanted.emplace_back();
  }
  wanted.emplace_back();
  EXPECT_EQ(CallsOf(Rules("granite"), put("<|tool_call|> [", ",")), wanted);
  EXPECT_EQ(CallsOf(Rules("mistral"), put("[TOOL_CALLS][", ", ")), wanted);
  EXPECT_EQ(CallsOf(Rules("llama3_json"), put("<|python_tag|>", "; ")), wanted);
  EXPECT_EQ(CallsOf(Rules("llama4_json"), put(" ", "")), wanted);
  EXPECT_EQ(CallsOf(Rules("mistral"),
                    {"[TOOL_CALLS]ti", "me[ARGS]", "{\"a\"", ": 1}", "[TOOL_CALLS]", "f/g{", "}"}),
            (std::vector<std::string>{"", "", "time:{\"a\"", ":: 1}", "", "f/g:{", ":}"}));
}

TEST(OutputParser, ReadsCallsThatDoNotStreamAmongThoseThatDo) {
  // The arguments come first, or there are none.
  const std::string calls[] = {R"({"name": "time", "parameters": {"a": [1, "}"]}, "id": {}})",
                               R"({"arguments": {"b": 1}, "name": "weather"})",
                               R"({"name": "time"})", R"({"name": "time", "arguments": {}})"};
  const std::string all =
      R"(content [] reasoning [] time{"a": [1, "}"]} weather{"b":1} time{} time{})";
  const auto joined = [&](const std::string& between) {
    return calls[0] + between + calls[1] + between + calls[2] + between + calls[3];
  };
  EXPECT_EQ(Parsed(Rules("granite"), "<|tool_call|>[" + joined(" , ") + "]\n"), all);
  EXPECT_EQ(Parsed(Rules("mistral"), "[TOOL_CALLS] [" + joined(",") + " ]"), all);
  EXPECT_EQ(Parsed(Rules("llama3_json"), joined("; ")), all);
  EXPECT_EQ(Parsed(Rules("llama3_json"), joined("\n")), all);
  OutputRules one = Rules("granite");
  one.parallel = false;
  EXPECT_EQ(Parsed(one, "<|tool_call|>[" + joined(",") + "]"),
            R"(content [] reasoning [] time{"a": [1, "}"]})");
}

TEST(OutputParser, AListMayBeginWithACallThatHasNoArguments) {
  EXPECT_EQ(CallsOf(Rules("granite"), {"<|tool_call|>[{\"name\": ", "\"time\"}", ", {\"name\": ",
                                       "\"weather\", \"arguments\": {\"days\":", "1}}]"}),
            (std::vector<std::string>{"", "time:{}", "", "weather:{\"days\":", ":1}"}));
  EXPECT_EQ(CallsOf(Rules("llama3_json"),
                    {"{\"name\": \"time\"}; ", "{\"name\": \"weather\", \"parameters\": {", "}}"}),
            (std::vector<std::string>{"time:{}", "weather:{", ":}"}));
  for (const char* calls : {"granite", "mistral"}) {
    const std::string begin = StrCat(Rules(calls).calls->begin, " [ {\"name\": \"time\"}");
    EXPECT_EQ(Parsed(Rules(calls), begin + ", {\"name\": \"weather\", \"arguments\": {\"days\": "),
              "content [] reasoning [] time{} weather{\"days\": ");
    EXPECT_EQ(Parsed(Rules(calls), begin + "] so"), "content [so] reasoning [] time{}");
    const std::string none = StrCat(Rules(calls).calls->begin, "[{\"name\": 3}, so");
    EXPECT_EQ(Parsed(Rules(calls), none), "content [" + none + "] reasoning []");
  }
}

TEST(OutputParser, ANamedCallNeedsNoMarkBehindAnother) {
  EXPECT_EQ(
      CallsOf(Rules("mistral"),
              {"[TOOL_CALLS]time{}", " wea", "ther[AR", "GS]{\"days\":", "1}", "time", " {}"}),
      (std::vector<std::string>{"time:{}", "", "", "weather:{\"days\":", ":1}", "", "time:{}"}));
  for (const std::string rest : {"time is up {}", "unknown{}", "timely{\"a\": 1}", "ti", "time"})
    EXPECT_EQ(Parsed(Rules("mistral"), "[TOOL_CALLS]time[ARGS]{} " + rest),
              "content [" + rest + "] reasoning [] time{}");
  // Such text is not held back.
  const auto parser = MakeAnswerParser(Rules("mistral"));
  EXPECT_EQ(parser->Push("[TOOL_CALLS]time{} time is", false).content, "time is");
}

TEST(OutputParser, OtherTextAfterACallIsText) {
  constexpr const char* kCall = R"({"name": "time", "arguments": {"a": 1}})";
  const auto made = [](std::string_view content) {
    return StrCat("content [", content, R"(] reasoning [] time{"a": 1})");
  };
  for (const std::string rest :
       {"Done.", "{\"answer\": 42} so", "{\"name\": \"unknown\", \"parameters\": {}}",
        "{\"name\": \"ti"}) {
    EXPECT_EQ(Parsed(Rules("llama3_json"), StrCat(kCall, "; ", rest)), made(rest));
    EXPECT_EQ(Parsed(Rules("granite"), StrCat("<|tool_call|>[", kCall, "] ", rest)), made(rest));
    EXPECT_EQ(Parsed(Rules("mistral"), StrCat("[TOOL_CALLS]time {\"a\": 1} ", rest)), made(rest));
  }
  EXPECT_EQ(Parsed(Rules("granite"), StrCat("<|tool_call|>[", kCall, ", 3]")), made("3]"));
  EXPECT_EQ(Parsed(Rules("mistral"), R"([TOOL_CALLS]time[ARGS]{"a": "[TOOL_CALLS]{)"),
            R"(content [] reasoning [] time{"a": "[TOOL_CALLS]{)");
}

TEST(OutputParser, PartsDependOnTheTextAloneHoweverBrokenItIs) {
  const std::string fragments[] = {"[",
                                   "]",
                                   ", ",
                                   "; ",
                                   "{",
                                   "}",
                                   "\"",
                                   "\\",
                                   " \n",
                                   "so",
                                   "[TOOL_CALLS]",
                                   "<|tool_call|>",
                                   "<|python_tag|>",
                                   "time[ARGS]",
                                   "time",
                                   "unknown",
                                   R"({"name": "time", "arguments": {"a": "]}"}})",
                                   R"({"name": "time", "parameters": {)",
                                   R"({"name": "weather"})",
                                   R"({"arguments": {}, "name": "time"})",
                                   R"({"name": "unknown", "arguments": {}})"};
  for (const char* calls : {"mistral", "granite", "llama3_json"})
    ExpectNoCutMatters(calls, fragments);
}

TEST(OutputParser, KeepsACallWhoseArgumentsWereCutOff) {
  EXPECT_EQ(
      Parsed(Rules("hermes"), "<tool_call>{\"name\": \"time\", \"arguments\": {\"a\": \"</too"),
      "content [] reasoning [] time{\"a\": \"</too");
  EXPECT_EQ(
      Parsed(Rules("hermes"), "<tool_call>{\"name\": \"time\", \"arguments\": {\"a\": 1</too"),
      "content [] reasoning [] time{\"a\": 1");
}

TEST(OutputParser, EndsArgumentsThatStreamAtTheMarkOrTheirBracket) {
  EXPECT_EQ(Parsed(Rules("hermes"),
                   "<tool_call>{\"name\":\"time\",\"arguments\":{\"a\":1</tool_call> Done."),
            "content [Done.] reasoning [] time{\"a\":1");
  EXPECT_EQ(Parsed(Rules("hermes"),
                   "<tool_call>{\"name\":\"time\",\"arguments\":{},\"id\":{\"b\":\"}\"}}\nDone."),
            "content [Done.] reasoning [] time{}");
  EXPECT_EQ(Parsed(Rules("hermes"),
                   "<tool_call>{\"name\":\"time\",\"arguments\":{},\"id\":2</tool_call><tool_call>"
                   "{\"name\":\"weather\",\"parameters\":{}} \n</tool_call>\n"),
            "content [] reasoning [] time{} weather{}");
}

TEST(OutputParser, ReadsArgumentsThatPrecedeTheName) {
  EXPECT_EQ(Parsed(Rules("hermes"),
                   "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"time\"}</tool_call>"),
            "content [] reasoning [] time{\"a\":1}");
}

TEST(OutputParser, GivesBackTextWithoutCallsByteForByte) {
  constexpr char kBrokenDsml[] =
      "<｜DSML｜function_calls><｜DSML｜invoke name=\"time\"><｜DSML｜parameter name=\"a\" "
      "string=\"no\">1</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>";
  for (const char* calls : {"hermes", "llama3_json", "qwen3_coder", "glm45", "mistral", "granite",
                            "deepseek_v3", "functiongemma", "gemma4", "pythonic", "deepseek_v32"}) {
    for (const std::string text :
         {" a <tool_call> {\"name\": 3} </tool_call> \n",
          "<tool_call>{\"name\":\"time\",",
          "<tool_call>{\"name\":\"time\",\"arguments\":[1]}</tool_call>",
          "a <tool_cal",
          " \n\n",
          "{\"name\": \"unknown\"}",
          "{\"answer\": 42} ",
          "<|python_tag|>print(1)",
          "",
          "<tool_call><function=f><parameter=a></function></tool_call>",
          "<tool_call>f<arg_key>a</tool_call>",
          "[TOOL_CALLS]f[1]",
          "<|tool_call|>[]",
          "<start_function_call>call:f{a:[}<end_function_call>",
          "<|tool_call>f<tool_call|>",
          "<｜DSML｜function_calls><｜DSML｜invoke name=\"time\"></｜DSML｜function_calls>",
          "<｜DSML｜function_calls>so</｜DSML｜function_calls>",
          kBrokenDsml,
          "[time(), unknown()] ",
          "[time(city)]",
          "[time(a=1] ",
          "[1, 2]",
          "[time()] it is",
          "[]",
          "<|python_start|>[time(a=\"x)]<|python_end|>",
          "[time(a=\"x",
          "[time(a=1 b=2)]",
          "<｜tool▁calls▁begin｜>f<｜tool▁calls▁end｜>"}) {
      // There, a string has begun that is an argument.
      if (calls == std::string("pythonic") && text.find("time(a=\"") != text.npos) continue;
      EXPECT_EQ(Parsed(Rules(calls), text), "content [" + text + "] reasoning []") << calls;
    }
  }
}

TEST(OutputParser, ReadsACallAfterABrokenOne) {
  EXPECT_EQ(Parsed(Rules("hermes"),
                   "<tool_call>{}</tool_call><tool_call>{\"name\":\"time\"}</tool_call>"),
            "content [<tool_call>{}</tool_call>] reasoning [] time{}");
}

TEST(OutputParser, ReadsLlamasBareAndMarkedCalls) {
  EXPECT_EQ(Parsed(Rules("llama3_json"),
                   "\n{\"name\": \"weather\", \"parameters\": {\"city\": \"a;}\"}}; "
                   "{\"name\": \"time\", \"parameters\": {}}"),
            "content [] reasoning [] weather{\"city\": \"a;}\"} time{}");
  EXPECT_EQ(Parsed(Rules("llama3_json"), "Now: <|python_tag|>{\"name\": \"time\"}"),
            "content [Now:] reasoning [] time{}");
}

TEST(OutputParser, ReadsMistralsListsAndNames) {
  EXPECT_EQ(Parsed(Rules("mistral"),
                   "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"a\"}}, "
                   "{\"name\": \"time\", \"arguments\": {}}]"),
            "content [] reasoning [] weather{\"city\": \"a\"} time{}");
  EXPECT_EQ(Parsed(Rules("mistral"),
                   "Ok [TOOL_CALLS]weather[CALL_ID]123456789[ARGS]{\"city\": \"[TOOL_CALLS]\"}"
                   "[TOOL_CALLS]time{}"),
            "content [Ok] reasoning [] weather{\"city\": \"[TOOL_CALLS]\"} time{}");
}

TEST(OutputParser, ReadsGranitesList) {
  EXPECT_EQ(Parsed(Rules("granite"), "<|tool_call|> [{\"name\": \"time\", \"arguments\": {}}]"),
            "content [] reasoning [] time{}");
}

TEST(OutputParser, ReadsDeepSeeksOldAndNewCalls) {
  const OutputRules rules = Rules("deepseek_v31");
  EXPECT_EQ(Parsed(rules,
                   "Ok.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": "
                   "\"<｜tool▁calls▁end｜>\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>time"
                   "<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
            "content [Ok.] reasoning [] weather{\"city\": \"<｜tool▁calls▁end｜>\"} time{}");
  EXPECT_EQ(
      Parsed(rules,
             "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>time\n```json\n"
             "{\"zone\": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
      "content [] reasoning [] time{\"zone\": 1}");
}

TEST(OutputParser, ReadsGemmasUnquotedObjects) {
  EXPECT_EQ(Parsed(Rules("functiongemma"),
                   "<start_function_call>call:weather{city:<escape>a, {b}<escape>,days:2,parts:[1,"
                   "<escape>x<escape>],more:{exact:true}}<end_function_call>"),
            "content [] reasoning [] weather{\"city\":\"a, {b}\",\"days\":2,\"parts\":[1,\"x\"],"
            "\"more\":{\"exact\":true}}");
  EXPECT_EQ(
      Parsed(Rules("gemma4"),
             "<|tool_call>call:weather{city:<|\"|>Bern<|\"|>}<tool_call|><|tool_call>call:time{}"
             "<tool_call|>"),
      "content [] reasoning [] weather{\"city\":\"Bern\"} time{}");
}

TEST(OutputParser, ReadsLlama4AndGranite4UnderTheirOwnNames) {
  EXPECT_EQ(Parsed(Rules("llama4_json"), R"({"name": "time", "parameters": {"a": 1}})"),
            R"(content [] reasoning [] time{"a": 1})");
  EXPECT_EQ(Parsed(Rules("granite4"),
                   "<tool_call>{\"name\": \"time\", \"arguments\": \"{}\"}</tool_call>"),
            "content [] reasoning [] time{}");
}

TEST(HarmonyParser, TellsChannelsAndRecipientsApart) {
  const OutputRules rules = Rules("openai", "openai_gptoss");
  EXPECT_EQ(Parsed(rules,
                   "<|channel|>analysis<|message|>Ask <b>.<|end|><|start|>assistant<|channel|>"
                   "commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"a\"}"
                   "<|call|>"),
            "content [] reasoning [Ask <b>.] weather{\"city\": \"a\"}");
  EXPECT_EQ(Parsed(rules,
                   " to=functions.time<|channel|>commentary<|message|><|call|><|start|>assistant"
                   "<|channel|>final<|message|>a < b <| c"),
            "content [a < b <| c] reasoning [] time{}");
  EXPECT_EQ(Parsed(rules,
                   "<|channel|>commentary to=functions.time<|message|> {\"a\": \"}\"} \n<|call|>"
                   "<|start|>assistant to=functions.time<|channel|>commentary<|message|>{} so"),
            "content [ so] reasoning [] time{\"a\": \"}\"} time{}");
  EXPECT_EQ(Parsed(rules, "No header, to= 5 <"), "content [No header, to= 5 <] reasoning []");
  EXPECT_EQ(Parsed(rules, "to= 5"), "content [to= 5] reasoning []");
  EXPECT_EQ(Parsed(rules, "<|channel|>commentary to=functions.time<|message|>[1]"),
            "content [[1]] reasoning []");
}

TEST(HarmonyParser, GivesArgumentsAsTheyCome) {
  EXPECT_EQ(CallsOf(Rules("openai"), {"<|channel|>commentary to=functions.time<|message|>", "\n{",
                                      "\"a\": 1 <", "|call", "|>"}),
            (std::vector<std::string>{"", "time:{", ":\"a\": 1 ", "", ""}));
  EXPECT_EQ(
      Parsed(Rules("openai"), "<|channel|>commentary to=functions.time<|message|>{\"a\": \"<"),
      "content [] reasoning [] time{\"a\": \"<");
  OutputRules one = Rules("openai");
  one.parallel = false;
  EXPECT_EQ(Parsed(one,
                   "<|channel|>commentary to=functions.time<|message|>{}<|call|><|start|>assistant "
                   "to=functions.weather<|message|>{\"a\": 1}<|call|>"),
            "content [] reasoning [] time{}");
}

TEST(HarmonyParser, SplitsChannelsWithoutTools) {
  EXPECT_EQ(Parsed(Rules("none", "openai_gptoss"),
                   "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final"
                   "<|message|>Yes."),
            "content [Yes.] reasoning [Hm.]");
}

TEST(HarmonyParser, TakesAHeaderThatDoesNotEndForText) {
  const std::string text(2000, 'x');
  EXPECT_EQ(Parsed(Rules("openai"), "<|channel|>" + text), "content [" + text + "] reasoning []");
}

TEST(OutputParser, KeepsOnlyTheFirstCallIfTheClientWantsOne) {
  OutputRules rules = Rules("hermes");
  rules.parallel = false;
  EXPECT_EQ(Parsed(rules,
                   "<tool_call>{\"name\":\"time\"}</tool_call>"
                   "<tool_call>{\"name\":\"weather\"}</tool_call>"),
            "content [] reasoning [] time{}");
  EXPECT_EQ(Parsed(rules,
                   "<tool_call>{\"name\":\"time\",\"arguments\":{}}</tool_call>"
                   "<tool_call>{\"name\":\"weather\",\"arguments\":{\"a\":1}}</tool_call>ok"),
            "content [ok] reasoning [] time{}");
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
  EXPECT_EQ(names("<tool_call>\\n<function=example>"), "qwen3_coder none");
  EXPECT_EQ(names("<tool_call>{name}\\n<arg_key>"), "glm45 none");
  EXPECT_EQ(names("[TOOL_CALLS] [THINK]...[/THINK]"), "mistral mistral");
  EXPECT_EQ(names("<|tool_call|>"), "granite none");
  EXPECT_EQ(names("by writing a \"<｜DSML｜function_calls>\" block"), "deepseek_v32 none");
  EXPECT_EQ(names("{\"name\": function name, \"parameters\": dictionary of argument name and its"),
            "llama3_json none");
  EXPECT_EQ(names("in the format of [func_name1(params_name1=params_value1, params_name2=...)]"),
            "llama4_pythonic none");
  EXPECT_EQ(names("Use exact format: [func_name1(param1=value1, param2=value2), func_name2(...)]"),
            "llama4_pythonic none");
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
