#include "engine/serve/response_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/serve/schema_responses.h"

namespace pinion {
namespace {

using testing::StartsWith;

// A body with an input and these fields: what its Response repeats, or the error's parameter.
Json ShownOfFields(const std::string& fields) {
  const auto body = Json::Parse(R"({"input":"hi")" + (fields.empty() ? "" : "," + fields) + "}");
  const auto translated = ChatBodyOfResponses(*body);
  if (!translated) return Json(translated.error().param + ": " + translated.error().message);
  return *Json::Parse("{" + translated->shown + "}");
}

std::string ShownAs(const std::string& fields, const char* key) {
  return ShownOfFields(fields).Find(key)->Dump();
}

TEST(ResponseSettings, AreTheDefaultsOfTheApi) {
  EXPECT_EQ(ShownOfFields("").Dump(),
            R"({"instructions":null,"max_output_tokens":null,"prompt_cache_key":null,)"
            R"("prompt_cache_retention":null,"safety_identifier":null,"user":null,)"
            R"("max_tool_calls":null,"metadata":{},"parallel_tool_calls":true,)"
            R"("reasoning":{"effort":null,"summary":null},)"
            R"("text":{"format":{"type":"text"},"verbosity":"medium"},"tool_choice":"auto",)"
            R"("tools":[],"top_logprobs":0})");
}

TEST(ResponseSettings, AreThoseOfTheClient) {
  for (const auto& [key, value] :
       {std::pair{"instructions", R"("a")"},
        {"max_output_tokens", "7"},
        {"prompt_cache_key", R"("k")"},
        {"prompt_cache_retention", R"("24h")"},
        {"safety_identifier", R"("s")"},
        {"user", R"("u")"},
        {"max_tool_calls", "2"},
        {"metadata", R"({"k":"v"})"},
        {"parallel_tool_calls", "false"},
        {"tool_choice", R"("none")"},
        {"top_logprobs", "3"},
        {"text", R"({"format":{"type":"json_object"},"verbosity":"low"})"}})
    EXPECT_EQ(ShownAs(std::string("\"") + key + "\":" + value, key), value);
  EXPECT_EQ(ShownAs(R"("reasoning":{"effort":"low","summary":"auto"})", "reasoning"),
            R"({"effort":"low","summary":null})")
      << "thoughts are never summed up";
  EXPECT_EQ(ShownAs(R"("user":null)", "user"), "null");
}

TEST(ResponseSettings, HaveAllFieldsThatTheSchemaWants) {
  EXPECT_EQ(ShownAs(R"("tools":[{"type":"function","name":"f"}])", "tools"),
            R"([{"type":"function","name":"f","description":null,"parameters":null,)"
            R"("strict":null}])");
  EXPECT_EQ(ShownAs(R"("text":{"format":{"type":"json_schema","schema":{}}})", "text"),
            R"({"format":{"type":"json_schema","schema":{},"name":"response","description":null,)"
            R"("strict":true},"verbosity":"medium"})");
  EXPECT_EQ(
      ShownAs(R"("text":{"format":{"type":"json_schema","schema":{},"name":"n","strict":false}})",
              "text"),
      R"({"format":{"type":"json_schema","schema":{},"name":"n","strict":false,)"
      R"("description":null},"verbosity":"medium"})");
}

TEST(ResponseSettings, OfAnotherTypeAreRefused) {
  for (const auto& [key, value] : {std::pair{"metadata", R"({"k":1})"},
                                   {"metadata", "[]"},
                                   {"user", "3"},
                                   {"safety_identifier", "[]"},
                                   {"prompt_cache_key", "{}"},
                                   {"prompt_cache_retention", "24"},
                                   {"max_tool_calls", R"("x")"}})
    EXPECT_THAT(ShownOfFields(std::string("\"") + key + "\":" + value).string(),
                StartsWith(std::string(key) + ": '" + key + "'"));
  EXPECT_THAT(ShownOfFields(R"("text":{"verbosity":"much"})").string(),
              StartsWith("text.verbosity: "));
}

}  // namespace
}  // namespace pinion
