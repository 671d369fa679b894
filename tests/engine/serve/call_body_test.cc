// Calls that are not JSON as the model writes them: Qwen3-Coder, GLM, DeepSeek, Gemma, pythonic.

#include "engine/serve/call_body.h"

#include <gtest/gtest.h>

#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/strings.h"
#include "tests/engine/serve/call_spellings.h"
#include "tests/engine/serve/taken_apart.h"
#include "tests/watched.h"

namespace pinion {
namespace {

TEST(CallBody, ReadsQwenCodersTypedParameters) {
  EXPECT_EQ(Parsed(Rules("qwen3_coder"),
                   "So:\n<tool_call>\n<function=weather>\n<parameter=city>\n12\n</parameter>\n"
                   "<parameter=days>\n3\n</parameter>\n<parameter=exact>True</parameter>\n"
                   "<parameter=parts>[\"a\"]</parameter>\n<parameter=new>4</parameter>\n"
                   "</function>\n</tool_call>"),
            "content [So:] reasoning [] weather{\"city\":\"12\",\"days\":3,\"exact\":true,"
            "\"parts\":[\"a\"],\"new\":\"4\"}");
}

TEST(CallBody, ReadsGlmsKeysAndValues) {
  EXPECT_EQ(Parsed(Rules("glm45"),
                   "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>St \"X\"</arg_value>\n"
                   "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n"
                   "<tool_call>time</tool_call>"),
            "content [] reasoning [] weather{\"city\":\"St \\\"X\\\"\",\"days\":2} time{}");
}

TEST(CallBody, ReadsDeepSeeksMarkedParameters) {
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

TEST(CallBody, ReadsPythonsCalls) {
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

TEST(CallBody, GivesMarkedParametersAsTheyCome) {
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

TEST(CallBody, GivesGemmasArgumentsAsTheyCome) {
  using Given = std::vector<std::string>;
  EXPECT_EQ(CallsOf(Rules("gemma4"), {"<|tool_call>call:wea", "ther{ci", "ty:<|\"", "|>Be", "r\"n<",
                                      "b|<|\"|", ">", ", days", ":1", "2,parts", ":[", "1,<|\"|>a",
                                      "<|\"|>,{b:", "true}", "]", "}", "<tool_call|>"}),
            (Given{"", "", "", "weather:{\"city\":\"Be", ":r\\\"n", ":<b|", ":\"", "",
                   ":,\"days\":", ":12", ":,\"parts\":[", ":1,\"a", ":\",{\"b\":", ":true}", ":]",
                   ":}", ""}));
  EXPECT_EQ(CallsOf(Rules("functiongemma"), {"<start_function_call>call:time{<escape>a b<escape>:",
                                             "{", "c:x y,", "d:<esc", "ape>1<escape>}}"}),
            (Given{"", "time:{\"a b\":{", ":\"c\":\"x y\",", ":\"d\":", ":\"1\"}}"}));
}

TEST(CallBody, GivesDeepSeeksArgumentsAsTheyCome) {
  using Given = std::vector<std::string>;
  EXPECT_EQ(CallsOf(Rules("deepseek_v31"),
                    {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>wea", "ther<｜tool▁sep｜>",
                     "{\"city\": ", "\"B<｜tool▁call", "s▁end｜>\"", "}<｜tool▁call▁end｜>",
                     "<｜tool▁call▁begin｜>f", "<｜tool▁sep｜>{", "}",
                     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"}),
            (Given{"", "", "weather:{\"city\": ", ":\"B<｜tool▁call", ":s▁end｜>\"", ":}", "",
                   "f:{", ":}", ""}));
  EXPECT_EQ(CallsOf(Rules("deepseek_v3"),
                    {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>ti",
                     "me\n```json\n", "{\"a\":", " 1}\n", "```<｜tool▁call▁end｜>"}),
            (Given{"", "", "time:{\"a\":", ": 1}", ""}));
}

TEST(CallBody, PartsOfMarkedParametersDependOnTheTextAlone) {
  ExpectNoCutMatters("gemma4", kGemmaPieces);
  ExpectNoCutMatters("deepseek_v3", kDeepSeekPieces);
  for (const char* calls : {"qwen3_coder", "glm45"}) ExpectNoCutMatters(calls, kTagPieces);
  ExpectNoCutMatters("deepseek_v32", kDsmlPieces);
  ExpectNoCutMatters("pythonic", kPythonPieces);
}

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

TEST(CallBody, MarkedParametersAreTheJsonOfTheirValuesWhereverTheyAreCut) {
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

TEST(CallBody, ACallThatIsCutOffHasTheBeginningOfItsArguments) {
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

// Far more than any buffer holds, in the smallest pieces there are. Were each byte to cost as much
// as all before it, a megabyte would take minutes instead of seconds: the plain build shows that. A
// sanitizer looks at every byte, and 64 KiB are still 64 times the largest buffer.
TEST(CallBody, ReadsAMegabyteByteByByte) {
  const std::string value(size_t{1} << (tests::Watched() ? 16 : 20), 'v');
  for (const Spelling& spelling : kSpellings) {
    for (const char* tool : {"weather", "unknown"}) {
      std::string text = spelling.write({{"city", value}});
      text.replace(text.find("weather"), 7, tool);
      const auto parser = MakeAnswerParser(Rules(spelling.calls));
      ParsedOutput whole;
      for (const char c : text) whole.Append(parser->Push({&c, 1}, /*last=*/false));
      whole.Append(parser->Push("", /*last=*/true));
      EXPECT_NE(Show(whole).find(value), std::string::npos) << spelling.calls << " " << tool;
    }
  }
}

TEST(CallBody, BrokenMarkedParametersAreText) {
  EXPECT_EQ(Parsed(Rules("gemma4"), "<|tool_call>call:time{a:1,b:}<tool_call|> so"),
            "content [}<tool_call|> so] reasoning [] time{\"a\":1,\"b\":");
  EXPECT_EQ(Parsed(Rules("gemma4"), "<|tool_call>call:time{a:1}!<tool_call|> so"),
            "content [!<tool_call|> so] reasoning [] time{\"a\":1}");
  EXPECT_EQ(Parsed(Rules("deepseek_v3"),
                   "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>time<｜tool▁sep｜>{}!"
                   "<｜tool▁call▁end｜><｜tool▁calls▁end｜> so"),
            "content [!<｜tool▁call▁end｜><｜tool▁calls▁end｜> so] reasoning [] time{}");
  EXPECT_EQ(
      Parsed(Rules("qwen3_coder"),
             "<tool_call><function=time><parameter=a>1</parameter> so</function></tool_call>"),
      "content [so</function></tool_call>] reasoning [] time{\"a\":\"1\"}");
  EXPECT_EQ(Parsed(Rules("pythonic"), "[time(a='1', b=@)] so"),
            "content [@)] so] reasoning [] time{\"a\":\"1\",\"b\":");
  EXPECT_EQ(Parsed(Rules("pythonic"), "[time(a='1'), unknown()] so"),
            "content [unknown()] so] reasoning [] time{\"a\":\"1\"}");
  EXPECT_EQ(Parsed(Rules("pythonic"), "[time(a=1)] so"), "content [so] reasoning [] time{\"a\":1}");
}

TEST(CallBody, ACallWithoutItsEndIsClosedUnlessAValueIsCut) {
  EXPECT_EQ(Parsed(Rules("qwen3_coder"),
                   "<tool_call><function=time><parameter=a>1</parameter></tool_call> so"),
            "content [so] reasoning [] time{\"a\":\"1\"}");
  EXPECT_EQ(
      Parsed(Rules("deepseek_v32"),
             "<｜DSML｜function_calls><｜DSML｜invoke name=\"time\"><｜DSML｜parameter name=\"a\" "
             "string=\"true\">1</｜DSML｜parameter></｜DSML｜function_calls>"),
      "content [] reasoning [] time{\"a\":\"1\"}");
  EXPECT_EQ(Parsed(Rules("glm45"),
                   "<tool_call>time<arg_key>a</arg_key><arg_value>1</arg_value><arg_key>b</arg_key>"
                   "</tool_call>"),
            "content [] reasoning [] time{\"a\":\"1\"}");
  EXPECT_EQ(Parsed(Rules("gemma4"), "<|tool_call>call:time{a:1,<tool_call|> so"),
            "content [so] reasoning [] time{\"a\":1}");
  EXPECT_EQ(Parsed(Rules("gemma4"), "<|tool_call>call:time{a:{b:1},<tool_call|>"),
            "content [] reasoning [] time{\"a\":{\"b\":1}}");
  EXPECT_EQ(Parsed(Rules("gemma4"), "<|tool_call>call:time{a:{b:1<tool_call|>"),
            "content [] reasoning [] time{\"a\":{\"b\":");
  EXPECT_EQ(Parsed(Rules("deepseek_v3"),
                   "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>time<｜tool▁sep｜>{\"a\": 1"
                   "<｜tool▁call▁end｜><｜tool▁calls▁end｜> so"),
            "content [so] reasoning [] time{\"a\": 1");
  EXPECT_EQ(Parsed(Rules("pythonic"), "[time(a='1']"),
            "content []] reasoning [] time{\"a\":\"1\"}");
  EXPECT_EQ(Parsed(Rules("qwen3_coder"), "<tool_call><function=time><parameter=a>1</tool_call>"),
            "content [] reasoning [] time{\"a\":\"1");
}

TEST(CallBody, BehindALongBodyThatBreaksTheTextIsReadAsEver) {
  const std::string value(1500, 'v'), call = "<tool_call><function=time><parameter=a>";
  EXPECT_EQ(
      Parsed(Rules("qwen3_coder"), StrCat(call, value, "</parameter>", call, "1</parameter>!")),
      StrCat("content [!] reasoning [] time{\"a\":\"", value, "\"} time{\"a\":\"1\"}"));
}

TEST(CallBody, MarkedCallsOfOtherToolsAreReadWhenTheyAreComplete) {
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

}  // namespace
}  // namespace pinion
