// The table of fields that the APIs read, and the check of a body against it.

#include "engine/serve/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/serve/field_table.h"

namespace pinion {
namespace {

using testing::HasSubstr;

TEST(Fields, NamesAnUnknownOneUnlessTheyAreIgnored) {
  const Json body = *Json::Parse(R"({"prompt":"x","user":"me","guided_json":null,"audio":"",
                                     "watermarking":null,"messages":[],"top_pp":0.5})");
  auto refused = CheckFields(Api::kChat, body, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 400);
  EXPECT_EQ(refused.error().param, "prompt") << "a field of the other endpoint";
  EXPECT_EQ(refused.error().code, kUnknownField);
  EXPECT_THAT(CheckFields(Api::kCompletions, body, {}).error().message,
              HasSubstr("'messages' is not a field of this endpoint"));
  const FieldRules ignoring = {.ignores_unknown = true};
  EXPECT_EQ(CheckFields(Api::kCompletions, body, ignoring).value(), 2u);  // messages, top_pp
  EXPECT_EQ(CheckFields(Api::kChat, body, ignoring).value(), 2u);         // prompt, top_pp
  const Json harmless = *Json::Parse(R"({"prompt":"x","user":"me","store":true})");
  EXPECT_EQ(CheckFields(Api::kCompletions, harmless, {}).value(), 0u);
}

TEST(Fields, RefusesUnsupportedFieldsEvenIfUnknownOnesAreIgnored) {
  const auto refused = [](Api api, const std::string& field) {
    const auto checked =
        CheckFields(api, *Json::Parse("{" + field + "}"), {.ignores_unknown = true});
    return checked ? "" : checked.error().message;
  };
  EXPECT_THAT(refused(Api::kChat, R"("functions":[{}])"),
              HasSubstr("'functions' is not supported; use tools"));
  EXPECT_EQ(refused(Api::kChat, R"("functions":[])"), "");
  EXPECT_THAT(refused(Api::kResponses, R"("background":true)"), HasSubstr("stores no responses"));
  EXPECT_EQ(refused(Api::kChat, R"("background":true)"), "") << "another API's";
}

TEST(Fields, HaveATemplateOfTheirOwnOnlyIfTheServerTrustsThem) {
  const Json body = *Json::Parse(R"({"chat_template":"{{ 1 }}"})");
  for (const Api api : {Api::kChat, Api::kMessages, Api::kResponses, Api::kTokenize,
                        Api::kApplyTemplate, Api::kCountTokens, Api::kEmbeddings, Api::kClassify}) {
    const auto refused = CheckFields(api, body, {.ignores_unknown = true});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().status, 400);
    EXPECT_EQ(refused.error().param, "chat_template");
    EXPECT_THAT(refused.error().message, HasSubstr("--trust-request-chat-template"));
    EXPECT_TRUE(CheckFields(api, body, {.trusts_templates = true}));
  }
  const auto text = CheckFields(Api::kCompletions, body, {.trusts_templates = true});
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message, HasSubstr("no template"));
}

TEST(Fields, HaveOneMeaningInEachApi) {
  std::string last;
  std::vector<const Field*> of_name;
  for (const Field& field : FieldTable()) {
    ASSERT_TRUE(Json::Parse(field.schema)) << field.name;
    if (last != field.name) of_name.clear();
    last = field.name;
    of_name.push_back(&field);
    for (auto api = Api::kCompletions; api <= Api::kCountTokens;
         api = static_cast<Api>(static_cast<int>(api) + 1)) {
      const auto has = [api](const Field* row) {
        return row->read_by.Has(api) + row->ignored_by.Has(api);
      };
      int times = 0;
      for (const Field* row : of_name) times += has(row);
      EXPECT_LE(times, 1) << field.name << " of API " << static_cast<int>(api);
      EXPECT_TRUE(field.read_by.Has(api) || !field.required_by.Has(api)) << field.name;
    }
  }
}

TEST(Fields, GoOnToAnotherApiIfBothMeanTheSame) {
  const Json body = *Json::Parse(R"({"top_p":0.5,"tools":[],"min_p":null,"user":"me","n":1})");
  EXPECT_EQ(SharedFields(body, Api::kResponses, Api::kChat).Dump(), R"({"top_p":0.5})");
}

}  // namespace
}  // namespace pinion
