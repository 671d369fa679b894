// Tools that a chat may call, and calls that it must make.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "tests/engine/serve/schema_bodies.h"

namespace pinion {
namespace {

using testing::HasSubstr;

TEST(Schema, RefusesToolsThatAreNoFunctions) {
  for (const char* tool :
       {"3", "{}", R"({"type":"function"})", R"({"type":"function","function":{}})",
        R"({"type":"function","function":{"name":""}})",
        R"({"type":"retrieval","function":{"name":"f"}})",
        R"({"type":"function","function":{"name":"f","parameters":[]}})"}) {
    const auto request =
        Chat(StrCat(R"({"messages":[{"role":"user","content":"x"}],"tools":[)", tool, "]}"));
    ASSERT_FALSE(request) << tool;
    EXPECT_EQ(request.error().param, "tools[0]") << tool;
  }
  EXPECT_TRUE(Chat(R"({"messages":[{"role":"user","content":"x"}],
      "tools":[{"function":{"name":"f","parameters":null}}]})"));
}

ApiResult<GenerationRequest> WithTools(const std::string& more) {
  return Chat(R"({"messages":[{"role":"user","content":"x"}],"tools":[
      {"type":"function","function":{"name":"f","parameters":{"type":"object",
       "properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"type":"integer"}}}}},
      {"type":"function","function":{"name":"g"}}],)" +
              more + "}");
}

TEST(Schema, ARequiredCallIsAListOfCallsOfAnyTool) {
  const auto request = WithTools(R"("tool_choice":"required","parallel_tool_calls":false)");
  ASSERT_TRUE(request) << request.error().message;
  ASSERT_TRUE(request->grammar && request->output.forced);
  EXPECT_EQ(request->output.forced->name, "");
  const Json schema = *Json::Parse(request->grammar->text);
  EXPECT_EQ(schema.Find("minItems")->integer(), 1);
  EXPECT_EQ(schema.Find("maxItems")->integer(), 1);
  EXPECT_EQ(schema.Find("items")->Find("anyOf")->array().size(), 2u);
  EXPECT_TRUE(schema.Find("$defs")->Find("A")) << "references look from the top";
  EXPECT_THAT(request->grammar->text,
              testing::Not(HasSubstr(R"("$defs":{"A":{"type":"integer"}}}},)")));
}

TEST(Schema, ANamedCallIsTheToolsArguments) {
  const auto request = WithTools(R"("tool_choice":{"type":"function","function":{"name":"g"}})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->output.forced->name, "g");
  EXPECT_EQ(request->grammar->text, R"({"type":"object"})");
}

TEST(Schema, RefusesCallsThatCannotBeForced) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"("tool_choice":{"type":"function","function":{"name":"h"}})", "none of the tools"},
      {R"("tool_choice":"always")", "want \"auto\""},
      {R"("tool_choice":"required","tools":[])", "has no tools"},
      {R"("tool_choice":"required","guided_regex":"a")", "both constrain"},
  };
  for (const auto& [field, why] : kCases) {
    auto body = *Json::Parse(R"({"messages":[{"role":"user","content":"x"}],
        "tools":[{"type":"function","function":{"name":"f"}}]})");
    const Json more = *Json::Parse(std::string("{") + field + "}");
    for (const auto& [key, value] : more.object()) body.Set(key, value);
    const auto request = ReadChatRequest(body, {});
    ASSERT_FALSE(request) << field;
    EXPECT_THAT(request.error().message, HasSubstr(why));
    EXPECT_EQ(request.error().param, "tool_choice");
  }
  const auto differ = Chat(R"({"messages":[{"role":"user","content":"x"}],"tool_choice":"required",
      "tools":[{"type":"function","function":{"name":"f","parameters":{"$defs":{"A":{"a":1}}}}},
               {"type":"function","function":{"name":"g","parameters":{"$defs":{"A":{"a":2}}}}}]})");
  ASSERT_FALSE(differ);
  EXPECT_THAT(differ.error().message, HasSubstr("two definitions of 'A'"));
}

}  // namespace
}  // namespace pinion
