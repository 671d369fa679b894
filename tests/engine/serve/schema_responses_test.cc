#include "engine/serve/schema_responses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/serve/fields.h"

namespace pinion {
namespace responses_tests {  // not those of Messages, whose helpers have the same names
namespace {

using testing::HasSubstr;

ApiResult<TranslatedBody> TranslateResponses(const Json& body) {
  PINION_TRY(CheckFields(Api::kResponses, body, {}));
  return ChatBodyOfResponses(body);
}

// The chat's body as text; an error's parameter and sentence.
std::string Translated(const std::string& body) {
  const auto chat = TranslateResponses(*Json::Parse(body));
  return chat ? chat->body.Dump() : chat.error().param + ": " + chat.error().message;
}

// With an input, and these fields: the chat's body without its messages.
std::string Fields(const std::string& fields) {
  const auto chat = TranslateResponses(*Json::Parse(R"({"input":"hi",)" + fields + "}"));
  if (!chat) return chat.error().param + ": " + chat.error().message;
  Json::Object rest = chat->body.object();
  std::erase_if(rest, [](const auto& field) { return field.first == "messages"; });
  return Json(rest).Dump();
}

// Of these items: the chat's messages as text.
std::string Messages(const std::string& items, const std::string& more = "") {
  const auto chat = ChatBodyOfResponses(*Json::Parse("{" + more + R"("input":)" + items + "}"));
  return chat ? chat->body.Find("messages")->Dump()
              : chat.error().param + ": " + chat.error().message;
}

TEST(SchemaResponses, KeepsFieldsOfBothApis) {
  EXPECT_EQ(Translated(R"({"model":"m","input":"hi","max_output_tokens":5,"temperature":0.5,
                           "min_p":0.1,"stop":"x","top_k":null,"store":true,"user":"me",
                           "truncation":"auto","stream":true,"background":false,
                           "stream_options":{"include_obfuscation":true}})"),
            R"({"model":"m","temperature":0.5,"min_p":0.1,"stop":"x","stream":true,)"
            R"("max_completion_tokens":5,"messages":[{"role":"user","content":"hi"}]})");
}

TEST(SchemaResponses, MakesMessagesOfItems) {
  EXPECT_EQ(Messages(R"([{"role":"user","content":"weather?"},
          {"type":"reasoning","id":"r","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
          {"type":"message","role":"assistant","status":"completed",
           "content":[{"type":"output_text","text":"I ask.","annotations":[]}]},
          {"type":"function_call","call_id":"c1","name":"weather","arguments":"{\"city\":\"Bern\"}"},
          {"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"rain"}]},
          {"role":"user","content":[{"type":"input_text","text":"and"},
                                    {"type":"input_text","text":"now?"}]}])"),
            R"([{"role":"user","content":"weather?"},)"
            R"({"role":"assistant","content":"I ask.","reasoning_content":"hm","tool_calls":[)"
            R"({"id":"c1","type":"function","function":)"
            R"({"name":"weather","arguments":"{\"city\":\"Bern\"}"}}]},)"
            R"({"role":"tool","content":"rain","tool_call_id":"c1"},)"
            R"({"role":"user","content":"and\nnow?"}])");
}

TEST(SchemaResponses, PutsInstructionsAndTheSystemFirstAsOneMessage) {
  EXPECT_EQ(Messages(R"([{"role":"developer","content":"b"},{"role":"user","content":"hi"},
                         {"role":"system","content":"c"}])",
                     R"("instructions":"a",)"),
            R"([{"role":"system","content":"a\n\nb"},{"role":"user","content":"hi"},)"
            R"({"role":"system","content":"c"}])");
}

TEST(SchemaResponses, TakesASummaryForThoughtsThatAreMissing) {
  EXPECT_EQ(Messages(R"([{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]},
                         {"role":"assistant","content":"yes"},{"role":"user","content":"so?"}])"),
            R"([{"role":"assistant","content":"yes","reasoning_content":"hm"},)"
            R"({"role":"user","content":"so?"}])");
  EXPECT_EQ(Messages(R"([{"type":"reasoning","summary":[],"encrypted_content":"x"},
                         {"role":"user","content":"so?"}])"),
            R"([{"role":"user","content":"so?"}])");
}

TEST(SchemaResponses, GoesOnWithAnUnfinishedMessageAlone) {
  const auto continues = [](const std::string& last) {
    return Translated(R"({"input":[{"role":"user","content":"hi"},)" + last + "]}")
               .find("continue_final_message") != std::string::npos;
  };
  EXPECT_TRUE(continues(R"({"role":"assistant","status":"incomplete","content":"Once"})"));
  EXPECT_FALSE(continues(R"({"role":"assistant","status":"completed","content":"Once"})"));
  EXPECT_FALSE(continues(R"({"role":"assistant","content":"Once"})"));
  EXPECT_FALSE(continues(R"({"role":"assistant","status":"incomplete","content":"Once"},
                            {"role":"user","content":"more"})"));
}

TEST(SchemaResponses, GivesToolsTheFormOfChats) {
  const std::string tools =
      R"("tools":[{"type":"function","name":"f","description":"d","strict":true,"parameters":{}},
                  {"type":"function","name":"g"}])";
  const std::string f =
      R"({"type":"function","function":{"name":"f","description":"d","parameters":{},"strict":true}})";
  const std::string g = R"({"type":"function","function":{"name":"g"}})";
  EXPECT_EQ(Fields(tools), R"({"tools":[)" + f + "," + g + "]}");
  EXPECT_THAT(Fields(tools + R"(,"tool_choice":"required")"),
              HasSubstr(R"("tool_choice":"required")"));
  EXPECT_THAT(Fields(tools + R"(,"tool_choice":{"type":"function","name":"g"})"),
              HasSubstr(R"("tool_choice":)" + g));
  EXPECT_EQ(Fields(tools + R"(,"tool_choice":{"type":"allowed_tools","mode":"required",
                              "tools":[{"type":"function","name":"g"}]})"),
            R"({"tools":[)" + g + R"(],"tool_choice":"required"})");
  EXPECT_THAT(Fields(tools + R"(,"tool_choice":{"type":"allowed_tools","mode":"auto",
                                "tools":[{"type":"function","name":"h"}]})"),
              HasSubstr("tool_choice.tools: 'tool_choice.tools' names 'h', which is none of the "));
  EXPECT_THAT(Fields(tools + R"(,"tool_choice":{"type":"file_search"})"), HasSubstr("file_search"));
  EXPECT_THAT(Fields(R"("tools":[{"type":"web_search"}])"),
              HasSubstr("tools[0]: 'tools[0]' is of type 'web_search'"));
}

TEST(SchemaResponses, GivesFormatsTheFormOfChats) {
  EXPECT_EQ(Fields(R"("text":{"format":{"type":"text"},"verbosity":"low"})"), "{}");
  EXPECT_EQ(Fields(R"("text":{"format":{"type":"json_object"}})"),
            R"({"response_format":{"type":"json_object"}})");
  EXPECT_EQ(
      Fields(R"("text":{"format":{"type":"json_schema","name":"n","strict":true,
                                        "schema":{"type":"object"}}})"),
      R"({"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object"}}}})");
  EXPECT_THAT(Fields(R"("text":{"format":{"type":"json_schema"}})"), HasSubstr("text.format: "));
  EXPECT_THAT(Fields(R"("text":{"format":{"type":"grammar"}})"), HasSubstr("text.format: "));
}

TEST(SchemaResponses, ReadsWishesForReasoningAndLogprobs) {
  EXPECT_EQ(Fields(R"("reasoning":{"effort":"low","summary":"auto"})"),
            R"({"reasoning_effort":"low"})");
  EXPECT_EQ(Fields(R"("include":["message.output_text.logprobs"])"),
            R"({"logprobs":true,"top_logprobs":0})");
  EXPECT_EQ(Fields(R"("top_logprobs":3)"), R"({"logprobs":true,"top_logprobs":3})");
  EXPECT_EQ(Fields(R"("include":["reasoning.encrypted_content"])"), "{}");
  EXPECT_THAT(Fields(R"("include":["everything"])"), HasSubstr(R"(holds "everything")"));
}

TEST(SchemaResponses, RefusesFieldsThatNeedAMemoryByName) {
  for (const char* field : {"previous_response_id", "conversation", "prompt"})
    EXPECT_THAT(Fields(std::string("\"") + field + R"(":"x")"),
                HasSubstr(std::string(field) + ": '" + field + "' is not supported"));
  EXPECT_THAT(Fields(R"("background":true)"), HasSubstr("background: "));
  EXPECT_THAT(Messages(R"([{"type":"item_reference","id":"x"}])"),
              HasSubstr("input[0]: 'input[0]' is a reference"));
}

TEST(SchemaResponses, RefusesItemsThatItCannotRead) {
  EXPECT_THAT(Translated("[]"), HasSubstr("want an object"));
  EXPECT_THAT(Translated("{}"), HasSubstr("input: 'input' is missing"));
  EXPECT_THAT(Messages("[]"), HasSubstr("at least one item"));
  EXPECT_THAT(Messages("[3]"), HasSubstr("input[0]: "));
  EXPECT_THAT(Messages(R"([{"type":"reasoning","id":"r","summary":[]}])"), HasSubstr("input: "));
  EXPECT_THAT(Messages(R"([{"role":"tool","content":"x"}])"), HasSubstr("input[0].role: "));
  EXPECT_THAT(Messages(R"([{"role":"user","content":[{"type":"input_image"}]}])"),
              HasSubstr("'input_image'"));
  EXPECT_THAT(Messages(R"([{"type":"computer_call"}])"), HasSubstr("'computer_call'"));
  EXPECT_THAT(Fields(R"("max_tokens":5)"), HasSubstr("max_tokens: "));
  EXPECT_THAT(Fields(R"("max_output_tokens":0)"), HasSubstr("max_output_tokens: "));
  EXPECT_THAT(Fields(R"("truncation":"most")"), HasSubstr("truncation: "));
}

}  // namespace
}  // namespace responses_tests
}  // namespace pinion
