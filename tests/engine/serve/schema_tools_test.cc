// Tools that a chat may call, and calls that it must make.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "tests/engine/serve/schema_bodies.h"

namespace pinion {
namespace {

using testing::HasSubstr;

TEST(Schema, RefusesToolsThatAreNotFunctions) {
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

// The names of the tools that the model is shown.
std::string Shown(const GenerationRequest& request) {
  std::vector<std::string> names;
  for (const Json& tool : request.conversation.tools.array())
    names.push_back(tool.Find("function")->Find("name")->string());
  return Join(names, " ");
}

std::string Allowed(const std::string& mode, const std::string& tools) {
  return R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":")" + mode +
         R"(","tools":[)" + tools + "]}}";
}

TEST(Schema, OfAllToolsThoseThatAreAllowedMayBeCalled) {
  const std::string g = R"({"type":"function","function":{"name":"g"}})";
  const std::string f = R"({"type":"function","function":{"name":"f"}})";
  const auto may = WithTools(Allowed("auto", g));
  ASSERT_TRUE(may) << may.error().message;
  EXPECT_EQ(Shown(*may), "g");
  EXPECT_FALSE(may->grammar);
  EXPECT_FALSE(may->output.forced);
  const auto must = WithTools(Allowed("required", g));
  ASSERT_TRUE(must) << must.error().message;
  EXPECT_EQ(Shown(*must), "g");
  ASSERT_TRUE(must->output.forced);
  EXPECT_EQ(must->output.forced->name, "");
  const Json schema = *Json::Parse(must->grammar->text);
  EXPECT_EQ(schema.Find("items")->Find("anyOf")->array().size(), 1u);
  EXPECT_EQ(Shown(*WithTools(Allowed("auto", g + "," + f + "," + g))), "f g")
      << "in the order of the tools";
  const auto also_named =
      WithTools(R"("tool_choice":{"type":"allowed_tools","function":{"name":"f"},)"
                R"("allowed_tools":{"mode":"required","tools":[)" +
                g + "]}}");
  ASSERT_TRUE(also_named) << also_named.error().message;
  ASSERT_TRUE(also_named->output.forced);
  EXPECT_EQ(also_named->output.forced->name, "") << "a name beside the list has no meaning";
}

TEST(Schema, RefusesToolsThatCannotBeAllowed) {
  const std::string of = R"("tool_choice":{"type":"allowed_tools","allowed_tools":)";
  const std::pair<std::string, const char*> kCases[] = {
      {Allowed("none", R"({"function":{"name":"f"}})"), "tool_choice.allowed_tools.mode"},
      {Allowed("auto", ""), "tool_choice.allowed_tools.tools"},
      {Allowed("auto", R"({"function":{"name":"f"}},{"function":{"name":"h"}})"),
       "tool_choice.allowed_tools.tools"},
      {Allowed("auto", R"({"type":"custom"})"), "tool_choice.allowed_tools.tools.name"},
      {of + R"({"mode":"auto","tools":"f"}})", "tool_choice.allowed_tools.tools"},
      {of + "[]}", "tool_choice.allowed_tools"},
      {R"("tool_choice":{"type":"allowed_tools"})", "tool_choice.allowed_tools"},
  };
  for (const auto& [field, param] : kCases) {
    const auto request = WithTools(field);
    ASSERT_FALSE(request) << field;
    EXPECT_EQ(request.error().param, param) << field;
    EXPECT_THAT(request.error().message, HasSubstr(StrCat("'", param, "'")));
  }
  const auto alone = Chat(R"({"messages":[{"role":"user","content":"x"}],)" +
                          Allowed("auto", R"({"function":{"name":"f"}})") + "}");
  ASSERT_FALSE(alone);
  EXPECT_THAT(alone.error().message, HasSubstr("none of the tools"));
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
