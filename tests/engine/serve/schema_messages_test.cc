#include "engine/serve/schema_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/base/strings.h"
#include "engine/serve/fields.h"

namespace pinion {
namespace {

using testing::HasSubstr;

// The chat's body as text; an error's parameter and sentence.
std::string Translated(const std::string& body, bool generates = true) {
  const Json message = *Json::Parse(body);
  if (const auto known = CheckFields(Api::kMessages, message, {}); !known)
    return known.error().param + ": " + known.error().message;
  const auto chat = ChatBodyOfMessages(message, generates);
  return chat ? chat->Dump() : chat.error().param + ": " + chat.error().message;
}

// Of these messages: the chat's messages as text.
std::string Turns(const std::string& messages, const std::string& more = "") {
  const auto chat = ChatBodyOfMessages(
      *Json::Parse("{\"max_tokens\":1," + more + "\"messages\":" + messages + "}"),
      /*generates=*/true);
  return chat ? chat->Find("messages")->Dump() : chat.error().param + ": " + chat.error().message;
}

TEST(SchemaMessages, KeepsFieldsOfBothApis) {
  EXPECT_EQ(Translated(R"({"model":"m","max_tokens":5,"temperature":0.5,"min_p":0.1,"top_k":null,
                           "cache_control":{"type":"ephemeral"},"stop_sequences":["x"],
                           "messages":[{"role":"user","content":"hi"}]})"),
            R"({"model":"m","max_tokens":5,"temperature":0.5,"min_p":0.1,)"
            R"("messages":[{"role":"user","content":"hi"}],"stop":["x"]})");
}

TEST(SchemaMessages, PutsTheSystemFirst) {
  const char* hi = R"([{"role":"user","content":"hi"}])";
  for (const char* system : {R"("system":"a\nb",)", R"("system":[{"type":"text","text":"a"},
                             {"type":"text","text":"b","cache_control":{"type":"ephemeral"}}],)"})
    EXPECT_EQ(Turns(hi, system),
              R"([{"role":"system","content":"a\nb"},{"role":"user","content":"hi"}])");
  EXPECT_THAT(Turns(hi, R"("system":[{"type":"image"}],)"), HasSubstr("system: "));
}

TEST(SchemaMessages, DropsTextThatDiffersInEachRequestOfAConversation) {
  const char* header =
      R"({"type":"text","text":"x-anthropic-billing-header: cc_version=2; cch=1"},)";
  const std::string blocks = StrCat("[", header, R"({"type":"text","text":"a"}])");
  EXPECT_EQ(Turns(R"([{"role":"user","content":"hi"}])", StrCat("\"system\":", blocks, ",")),
            R"([{"role":"system","content":"a"},{"role":"user","content":"hi"}])");
  EXPECT_EQ(Turns(StrCat(R"([{"role":"system","content":)", blocks,
                         R"(},{"role":"user","content":"hi"}])")),
            R"([{"role":"system","content":"a"},{"role":"user","content":"hi"}])");
  EXPECT_THAT(Turns(StrCat(R"([{"role":"user","content":)", blocks, "}]")),
              HasSubstr("x-anthropic-billing-header"))
      << "a user's own words";
}

TEST(SchemaMessages, KeepsInstructionsAmongTheMessages) {
  EXPECT_EQ(Turns(R"([{"role":"system","content":"b"},{"role":"user","content":"hi"},
                      {"role":"system","content":"c"},{"role":"ctx","content":"so"},
                      {"role":"system","content":[]},{"role":"user","content":"on"}])",
                  R"("system":"a",)"),
            R"([{"role":"system","content":"a\nb"},{"role":"user","content":"hi"},)"
            R"({"role":"system","content":"c"},{"role":"user","content":"so\non"}])");
  const std::string begun = R"({"role":"user","content":"hi"},{"role":"assistant","content":"So"})";
  EXPECT_THAT(Translated(StrCat(R"({"max_tokens":1,"messages":[)", begun, "]}")),
              HasSubstr("continue_final_message"));
  EXPECT_THAT(Translated(StrCat(R"({"max_tokens":1,"messages":[)", begun,
                                R"(,{"role":"system","content":"Be."}]})")),
              testing::Not(HasSubstr("continue_final_message")));
  EXPECT_THAT(Turns(R"([{"role":"system","content":"b"}])"), HasSubstr("messages: "));
  EXPECT_THAT(Turns(R"([{"role":"system","content":[{"type":"image"}]}])"),
              HasSubstr("messages[0].content: "));
}

TEST(SchemaMessages, TranslatesEffortAndFormat) {
  const auto translated = [](const std::string& config) {
    return Translated(R"({"max_tokens":1,"messages":[{"role":"user","content":"x"}],)" + config +
                      "}");
  };
  EXPECT_EQ(translated(R"("output_config":{"effort":"high","format":{"type":"json_schema",
                           "schema":{"type":"object"}}})"),
            R"({"max_tokens":1,"messages":[{"role":"user","content":"x"}],)"
            R"("reasoning_effort":"high","response_format":{"type":"json_schema","json_schema":)"
            R"({"name":"output","schema":{"type":"object"}}}})");
  EXPECT_THAT(translated(R"("output_config":3)"), HasSubstr("'output_config' is 3"));
  EXPECT_THAT(translated(R"("output_config":{"speed":1})"),
              HasSubstr("'output_config' has 'speed', want effort or format"));
  EXPECT_THAT(translated(R"("output_config":{"format":{"type":"json_schema"}})"),
              HasSubstr("output_config.format: "));
}

TEST(SchemaMessages, NamesStopSequencesAsTheClientDoes) {
  for (const char* stop : {R"("")", "[1]", R"([""])", "{}", "3"})
    EXPECT_THAT(Translated(StrCat(R"({"max_tokens":1,"messages":[{"role":"user","content":"x"}],)",
                                  R"("stop_sequences":)", stop, "}")),
                HasSubstr("stop_sequences: 'stop_sequences' is "))
        << stop;
}

TEST(SchemaMessages, MakesMessagesOfBlocks) {
  EXPECT_EQ(
      Turns(R"([{"role":"user","content":"weather?"},
                      {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":""},
                        {"type":"redacted_thinking","data":"x"},{"type":"text","text":"I ask."},
                        {"type":"tool_use","id":"c1","name":"weather","input":{"city":"Bern"}}]},
                      {"role":"user","content":[{"type":"text","text":"and?"},
                        {"type":"tool_result","tool_use_id":"c1",
                         "content":[{"type":"text","text":"rain"}]}]}])"),
      R"([{"role":"user","content":"weather?"},)"
      R"({"role":"assistant","content":"I ask.","reasoning_content":"hm","tool_calls":[)"
      R"({"id":"c1","type":"function","function":{"name":"weather","arguments":{"city":"Bern"}}}]},)"
      R"({"role":"tool","tool_call_id":"c1","content":"rain"},)"
      R"({"role":"user","content":"and?"}])");
}

TEST(SchemaMessages, MakesOneTurnOfNeighboursOfOneRole) {
  EXPECT_EQ(Turns(R"([{"role":"user","content":"a"},{"role":"user","content":"b"},
                      {"role":"assistant","content":"c"},{"role":"user","content":"d"}])"),
            R"([{"role":"user","content":"a\nb"},{"role":"assistant","content":"c"},)"
            R"({"role":"user","content":"d"}])");
}

TEST(SchemaMessages, HasTheAnswerGoOnFromALastTurnOfTheAssistant) {
  const auto continues = [](const char* last) {
    const std::string body =
        std::string(R"({"max_tokens":1,"messages":[{"role":"user","content":"x"},)") + last + "]}";
    return ChatBodyOfMessages(*Json::Parse(body), true)->Find("continue_final_message") != nullptr;
  };
  EXPECT_TRUE(continues(R"({"role":"assistant","content":"I"})"));
  EXPECT_FALSE(continues(R"({"role":"user","content":"I"})"));
  EXPECT_FALSE(continues(
      R"({"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]})"));
}

TEST(SchemaMessages, TranslatesToolsAndTheirChoice) {
  const auto field = [](const std::string& more, const char* name) {
    const auto chat = ChatBodyOfMessages(
        *Json::Parse(R"({"max_tokens":1,"messages":[{"role":"user","content":"x"}],)" + more + "}"),
        true);
    if (!chat) return chat.error().param + ": " + chat.error().message;
    const Json* value = chat->Find(name);
    return value ? value->Dump() : "";
  };
  EXPECT_EQ(
      field(R"("tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}])",
            "tools"),
      R"([{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}])");
  EXPECT_THAT(field(R"("tools":[{"type":"web_search_20250305","name":"web_search"}])", "tools"),
              HasSubstr("tools[0]: 'tools[0]' is of type 'web_search_20250305'"));
  const auto choice = [&](const char* value) {
    return field(std::string(R"("tool_choice":)") + value, "tool_choice");
  };
  EXPECT_EQ(choice(R"({"type":"auto"})"), R"("auto")");
  EXPECT_EQ(choice(R"({"type":"none"})"), R"("none")");
  EXPECT_EQ(choice(R"({"type":"any"})"), R"("required")");
  EXPECT_EQ(choice(R"({"type":"tool","name":"f"})"),
            R"({"type":"function","function":{"name":"f"}})");
  EXPECT_THAT(choice(R"({"type":"some"})"), HasSubstr("want auto, any, tool or none"));
  EXPECT_EQ(field(R"("tool_choice":{"type":"auto","disable_parallel_tool_use":true})",
                  "parallel_tool_calls"),
            "false");
  EXPECT_EQ(field(R"("thinking":{"type":"disabled"})", "chat_template_kwargs"),
            R"({"enable_thinking":false})");
  EXPECT_EQ(
      field(R"("thinking":{"type":"enabled","budget_tokens":9},"chat_template_kwargs":{"a":1})",
            "chat_template_kwargs"),
      R"({"a":1,"enable_thinking":true})");
}

TEST(SchemaMessages, RefusesByName) {
  EXPECT_THAT(Translated("[]"), HasSubstr("want an object"));
  EXPECT_THAT(Translated(R"({"max_tokens":1})"), HasSubstr("messages: 'messages' must be a list"));
  const std::string body = R"("messages":[{"role":"user","content":"x"}]})";
  EXPECT_THAT(Translated("{" + body), HasSubstr("max_tokens: 'max_tokens' is missing"));
  EXPECT_THAT(Translated("{" + body, /*generates=*/false), HasSubstr(R"("content":"x")"));
  EXPECT_THAT(Translated(R"({"max_tokens":1,"n":2,)" + body),
              HasSubstr("n: 'n' is not a field of this endpoint"));
  EXPECT_THAT(Turns(R"([{"role":"wizard","content":"x"}])"), HasSubstr("messages[0].role: "));
  EXPECT_THAT(Turns(R"([{"role":"user","content":3}])"), HasSubstr("messages[0].content: "));
  EXPECT_THAT(
      Turns(R"([{"role":"user","content":[{"type":"image","source":{}}]}])"),
      HasSubstr("messages[0].content[0]: 'messages[0].content[0]' has a block of type 'image'"));
  EXPECT_THAT(Turns(R"([{"role":"user","content":[{"type":"tool_use","id":"1"}]}])"),
              HasSubstr("'tool_use'"));
  EXPECT_THAT(Turns(R"([{"role":"user","content":[{"type":"text"}]}])"),
              HasSubstr("messages[0].content[0].text: "));
}

}  // namespace
}  // namespace pinion
