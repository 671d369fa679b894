#include <gtest/gtest.h>

#include <iterator>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/strings.h"
#include "engine/serve/answer_parser.h"

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
  const auto parser = MakeAnswerParser(rules);
  ParsedOutput whole;
  for (size_t i = 0; i < pieces.size(); ++i)
    whole.Append(parser->Push(pieces[i], i + 1 == pieces.size()));
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

// What each piece gives of calls.
std::vector<std::string> CallsOf(const OutputRules& rules, const std::vector<std::string>& pieces) {
  const auto parser = MakeAnswerParser(rules);
  std::vector<std::string> given;
  for (const std::string& piece : pieces) {
    given.emplace_back();
    for (const ToolCall& call : parser->Push(piece, false).calls)
      given.back() += call.name + ":" + call.arguments;
  }
  return given;
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

TEST(OutputParser, GivesMarkedParametersAsTheyCome) {
  using Given = std::vector<std::string>;
  EXPECT_EQ(CallsOf(Rules("qwen3_coder"),
                    {"<tool_call>\n<function=weather>\n", "<parameter=city>", "\nSt. \"", "X\"\n",
                     "Y\n</para", "meter>\n", "<parameter=days>2", "1</parameter>", "</function>",
                     "<function=time>", "</function>"}),
            (Given{"", "", "weather:{\"city\":\"St. \\\"", ":X\\\"", ":\\nY", ":\"",
                   ":,\"days\":", ":21", ":}", "time:{", ":}"}));
  EXPECT_EQ(
      CallsOf(Rules("glm45"), {"<tool_call>weather\n<arg_key>ci", "ty</arg_key><arg_value>", "B",
                               "<", "b>", "</arg_value>", "<arg_key>days</arg_key>", "<arg_value>2",
                               "</arg_value>", "</tool_call>"}),
      (Given{"", "weather:{\"city\":\"", ":B", "", ":<b>", ":\"", "", ":,\"days\":", ":2", ":}"}));
  EXPECT_EQ(
      CallsOf(
          Rules("deepseek_v32"),
          {"<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"time\">\n<｜DSML｜parameter ",
           "name=\"a\" string=\"", "true\">", "1", "</｜DSML｜parameter>", "</｜DSML｜invoke>"}),
      (Given{"", "", "time:{\"a\":\"", ":1", ":\"", ":}"}));
  EXPECT_EQ(CallsOf(Rules("pythonic"), {"[weather(", "city='", "a\\", "x41", "\"', ", "days=", "1",
                                        "2", ", parts=[1, ", "')'])", ", time(", ")", "]"}),
            (Given{"", "weather:{\"city\":\"", ":a", ":A", ":\\\"\"", ":,\"days\":", "", "",
                   ":12,\"parts\":", ":[1,\")\"]}", "time:{", ":}", ""}));
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

TEST(OutputParser, WhatFollowsACallAndIsNoneIsText) {
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

// Texts made of these fragments have the same parts however they are cut.
void ExpectNoCutMatters(const char* calls, std::span<const std::string> fragments) {
  std::mt19937 rng(20261126);
  std::uniform_int_distribution<size_t> any(0, fragments.size() - 1), few(1, 7);
  for (int i = 0; i < 200; ++i) {
    std::string text;
    for (size_t left = few(rng); left > 0; --left) text += fragments[any(rng)];
    Parsed(Rules(calls), text);
    if (::testing::Test::HasFailure()) FAIL() << calls << ": " << text;
  }
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

TEST(OutputParser, PartsOfMarkedParametersDependOnTheTextAlone) {
  const std::string tags[] = {"<tool_call>",
                              "</tool_call>",
                              "<function=weather>",
                              "<function=unknown>",
                              "<parameter=city>",
                              "<parameter=days>",
                              "</parameter>",
                              "</function>",
                              "<",
                              "</",
                              ">",
                              "\n",
                              "so",
                              "\"",
                              "weather",
                              "<arg_key>city</arg_key>",
                              "<arg_key>days</arg_key>",
                              "<arg_value>",
                              "</arg_value>",
                              "12"};
  const std::string dsml[] = {"<｜DSML｜function_calls>",
                              "</｜DSML｜function_calls>",
                              "<｜DSML｜invoke name=\"weather\">",
                              "<｜DSML｜invoke name=\"unknown\">",
                              "</｜DSML｜invoke>",
                              "<｜DSML｜parameter name=\"a\" string=\"",
                              "true\">",
                              "false\">",
                              "</｜DSML｜parameter>",
                              "so",
                              "\n",
                              "12"};
  const std::string python[] = {"[",
                                "]",
                                "weather(",
                                "time (",
                                "unknown(",
                                ")",
                                "city=",
                                "b = ",
                                "'",
                                "\"",
                                "\\",
                                "\\x4",
                                "\\u00e9",
                                ", ",
                                "12",
                                "None",
                                "{'c': [1, '}']}",
                                "<|python_start|>",
                                "<|python_end|>",
                                "so"};
  for (const char* calls : {"qwen3_coder", "glm45"}) ExpectNoCutMatters(calls, tags);
  ExpectNoCutMatters("deepseek_v32", dsml);
  ExpectNoCutMatters("pythonic", python);
}

// What a value is in each of the formats whose parameters are marked.
struct Spelling {
  const char* calls;
  std::string (*write)(const Json::Object& arguments);
};

// One of a call of `weather`, whose city is a string and whose parts are not.
bool IsText(const std::string& key) { return key != "parts" && key != "days" && key != "exact"; }
std::string Plain(const std::string& key, const Json& value) {
  return IsText(key) ? value.string() : value.Dump();
}

std::string WriteCoder(const Json::Object& arguments) {
  std::string text = "<tool_call>\n<function=weather>\n";
  for (const auto& [key, value] : arguments)
    text += StrCat("<parameter=", key, ">\n", Plain(key, value), "\n</parameter>\n");
  return text + "</function>\n</tool_call>";
}

std::string WriteGlm(const Json::Object& arguments) {
  std::string text = "<tool_call>weather";
  for (const auto& [key, value] : arguments)
    text +=
        StrCat("\n<arg_key>", key, "</arg_key>\n<arg_value>", Plain(key, value), "</arg_value>");
  return text + "\n</tool_call>";
}

std::string WriteDsml(const Json::Object& arguments) {
  std::string text = "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n";
  for (const auto& [key, value] : arguments)
    text +=
        StrCat("<｜DSML｜parameter name=\"", key, "\" string=\"", IsText(key) ? "true" : "false",
               "\">", Plain(key, value), "</｜DSML｜parameter>\n");
  return text + "</｜DSML｜invoke>\n</｜DSML｜function_calls>";
}

std::string WritePython(const Json::Object& arguments) {
  std::string text = "[weather(";
  for (const auto& [key, value] : arguments) text += StrCat(key, "=", value.Dump(), ", ");
  return text + ")]";
}

constexpr Spelling kSpellings[] = {{"qwen3_coder", WriteCoder},
                                   {"glm47", WriteGlm},
                                   {"deepseek_v32", WriteDsml},
                                   {"pythonic", WritePython}};

// Arguments with all that needs care in JSON or looks like a mark.
Json::Object SomeArguments(std::mt19937& rng) {
  const char* const pieces[] = {"a", "\"", "\\", "\n", "\t", "\x01", "<", "</",    "</p",  "é",
                                "😀", "'",  " ",  ",",  ")",  "]",    ">", "</arg", "</｜", "null"};
  std::uniform_int_distribution<size_t> any(0, std::size(pieces) - 1), few(0, 6);
  Json::Object arguments;
  for (const char* key : {"city", "days", "exact", "parts", "other", "last"}) {
    if (few(rng) < 2) continue;
    std::string text;
    for (size_t left = few(rng); left > 0; --left) text += pieces[any(rng)];
    Json value(text);
    if (key == std::string("days")) value = Json(static_cast<int64_t>(any(rng)) - 9);
    if (key == std::string("exact")) value = Json(any(rng) % 2 == 0);
    if (key == std::string("parts"))
      value = Json(Json::Array{Json(text), Json(2.5), Json(nullptr)});
    arguments.emplace_back(key, std::move(value));
  }
  return arguments;
}

TEST(OutputParser, MarkedParametersAreTheJsonOfTheirValuesWhereverTheyAreCut) {
  for (const Spelling& spelling : kSpellings) {
    std::mt19937 rng(20261126);
    for (int i = 0; i < 60; ++i) {
      const Json::Object arguments = SomeArguments(rng);
      const std::string text = spelling.write(arguments);
      EXPECT_EQ(Parsed(Rules(spelling.calls), text),
                "content [] reasoning [] weather" + Json(arguments).Dump())
          << spelling.calls << ": " << text;
      if (HasFailure()) return;
    }
  }
}

TEST(OutputParser, ACallThatIsCutOffHasTheBeginningOfItsArguments) {
  const Json::Object arguments = {{"city", "Bern"}, {"days", 12}, {"other", "x\"y"}};
  const std::string whole = Json(arguments).Dump();
  for (const Spelling& spelling : kSpellings) {
    const std::string text = spelling.write(arguments);
    for (size_t size = text.find("Bern"); size < text.size(); ++size) {
      const ParsedOutput parsed = Parse(Rules(spelling.calls), {text.substr(0, size)});
      ASSERT_EQ(parsed.calls.size(), 1u) << text.substr(0, size);
      EXPECT_EQ(parsed.content, "");
      std::string cut = parsed.calls[0].arguments;
      // GLM's arguments end where the call does.
      if (!whole.starts_with(cut) && cut.ends_with('}')) cut.pop_back();
      EXPECT_TRUE(whole.starts_with(cut)) << text.substr(0, size) << ": " << cut;
    }
  }
  EXPECT_EQ(Parsed(Rules("pythonic"), "[time(a=\"x"), "content [] reasoning [] time{\"a\":\"x");
  EXPECT_EQ(Parsed(Rules("pythonic"), "<|python_start|>[time(a=\"x)]<|python_end|> so"),
            "content [so] reasoning [] time{\"a\":\"x)]");
}

TEST(OutputParser, WhatBreaksMarkedParametersIsText) {
  EXPECT_EQ(
      Parsed(Rules("qwen3_coder"),
             "<tool_call><function=time><parameter=a>1</parameter> so</function></tool_call>"),
      "content [so</function></tool_call>] reasoning [] time{\"a\":\"1\"");
  EXPECT_EQ(Parsed(Rules("pythonic"), "[time(a='1', b=@)] so"),
            "content [@)] so] reasoning [] time{\"a\":\"1\",\"b\":");
  EXPECT_EQ(Parsed(Rules("pythonic"), "[time(a='1'), unknown()] so"),
            "content [unknown()] so] reasoning [] time{\"a\":\"1\"}");
  EXPECT_EQ(Parsed(Rules("pythonic"), "[time(a=1)] so"), "content [so] reasoning [] time{\"a\":1}");
}

TEST(OutputParser, MarkedCallsOfOtherToolsAreReadWhenTheyAreComplete) {
  EXPECT_EQ(CallsOf(Rules("qwen3_coder"), {"<tool_call><function=f><parameter=a>1", "</parameter>",
                                           "</function>", "</tool_call>"}),
            (std::vector<std::string>{"", "", "", "f:{\"a\":\"1\"}"}));
  OutputRules one = Rules("deepseek_v32");
  one.parallel = false;
  EXPECT_EQ(Parsed(one,
                   "<｜DSML｜function_calls><｜DSML｜invoke name=\"f\"></｜DSML｜invoke>"
                   "<｜DSML｜invoke name=\"time\"><｜DSML｜parameter name=\"a\" string=\"true\">1"
                   "</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>so"),
            "content [so] reasoning [] f{}");
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

TEST(OutputParser, GivesBackByteForByteWhatIsNoCall) {
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

TEST(OutputParser, ReadsACallAfterOneThatIsNone) {
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

TEST(OutputParser, ReadsQwenCodersTypedParameters) {
  EXPECT_EQ(Parsed(Rules("qwen3_coder"),
                   "So:\n<tool_call>\n<function=weather>\n<parameter=city>\n12\n</parameter>\n"
                   "<parameter=days>\n3\n</parameter>\n<parameter=exact>True</parameter>\n"
                   "<parameter=parts>[\"a\"]</parameter>\n<parameter=new>4</parameter>\n"
                   "</function>\n</tool_call>"),
            "content [So:] reasoning [] weather{\"city\":\"12\",\"days\":3,\"exact\":true,"
            "\"parts\":[\"a\"],\"new\":\"4\"}");
}

TEST(OutputParser, ReadsGlmsKeysAndValues) {
  EXPECT_EQ(Parsed(Rules("glm45"),
                   "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>St \"X\"</arg_value>\n"
                   "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n"
                   "<tool_call>time</tool_call>"),
            "content [] reasoning [] weather{\"city\":\"St \\\"X\\\"\",\"days\":2} time{}");
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
            "content [Ok.] reasoning [] weather{\"city\":\"<｜tool▁calls▁end｜>\"} time{}");
  EXPECT_EQ(
      Parsed(rules,
             "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>time\n```json\n"
             "{\"zone\": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
      "content [] reasoning [] time{\"zone\":1}");
}

TEST(OutputParser, ReadsDeepSeeksMarkedParameters) {
  EXPECT_EQ(
      Parsed(
          Rules("deepseek_v32"),
          "Ok.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter "
          "name=\"city\" string=\"true\"> 12</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" "
          "string=\"false\">3</｜DSML｜parameter>\n<｜DSML｜parameter name=\"parts\" "
          "string=\"false\">[\"a\"]</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke "
          "name=\"time\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"),
      "content [Ok.] reasoning [] weather{\"city\":\" 12\",\"days\":3,\"parts\":[\"a\"]} time{}");
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

TEST(OutputParser, ReadsPythonsCalls) {
  EXPECT_EQ(
      Parsed(Rules("pythonic"), "\n[weather(city=\"St. 'X'), \", days=-2, exact=True), time()]\n"),
      "content [] reasoning [] weather{\"city\":\"St. 'X'), \",\"days\":-2,\"exact\":true} "
      "time{}");
  EXPECT_EQ(Parsed(Rules("llama4_pythonic"),
                   "I ask. <|python_start|>[time( a = [1.5, 'b',], b={'c': None, \"d\": false},)]"
                   "<|python_end|> Done."),
            "content [I ask.Done.] reasoning [] time{\"a\":[1.5,\"b\"],\"b\":{\"c\":null,"
            "\"d\":false}}");
  EXPECT_EQ(Parsed(Rules("pythonic"), R"([time(a='\'\n\x41\u00e9\U0001F600\d\u12', b="\\")])"),
            R"(content [] reasoning [] time{"a":"'\nAé😀\\d\\u12","b":"\\"})");
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
