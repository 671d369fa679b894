#include "engine/serve/invocation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/serve/openapi.h"

namespace pinion {
namespace {

PoolingFacts FactsFor(ModelTask task, size_t width = 1, std::vector<std::string> labels = {}) {
  PoolingFacts facts;
  facts.task = task;
  facts.width = width;
  facts.labels = std::move(labels);
  return facts;
}
const PoolingFacts kText = FactsFor(ModelTask::kGenerate);
const PoolingFacts kEmbedder = FactsFor(ModelTask::kEmbed, 8);
const PoolingFacts kReranker = FactsFor(ModelTask::kScore, 1, {"LABEL_0"});
const PoolingFacts kPairs = FactsFor(ModelTask::kScore);
const PoolingFacts kClassifier = FactsFor(ModelTask::kScore, 2, {"a", "b"});

TEST(Invocation, IsToldByTheFieldsOfItsBody) {
  EXPECT_EQ(InvokedApi(R"({"messages":[],"max_tokens":3})", kText), Api::kChat);
  EXPECT_EQ(InvokedApi(R"({"prompt":"x"})", kText), Api::kCompletions);
  EXPECT_EQ(InvokedApi(R"({"prompt":"x","messages":[]})", kText), Api::kChat);
  EXPECT_EQ(InvokedApi(R"({"input":"x"})", kText), std::nullopt);
  for (const char* body : {R"({"input":"x"})", R"({"messages":[]})"}) {
    EXPECT_EQ(InvokedApi(body, kEmbedder), Api::kEmbeddings);
    EXPECT_EQ(InvokedApi(body, kReranker), Api::kClassify);
    EXPECT_EQ(InvokedApi(body, kClassifier), Api::kClassify);
    EXPECT_EQ(InvokedApi(body, kPairs), Api::kPooling);
  }
  for (const PoolingFacts& facts : {kEmbedder, kReranker, kPairs}) {
    EXPECT_EQ(InvokedApi(R"({"query":"q","documents":["d"]})", facts), Api::kRerank);
    for (const char* body :
         {R"({"queries":"q","documents":["d"]})", R"({"queries":"q","items":["d"]})",
          R"({"text_1":"q","text_2":["d"]})", R"({"data_1":"q","data_2":["d"]})"})
      EXPECT_EQ(InvokedApi(body, facts), Api::kScore) << body;
    EXPECT_EQ(InvokedApi(R"({"prompt":"x"})", facts), std::nullopt);
    EXPECT_EQ(InvokedApi(R"({"query":"q"})", facts), std::nullopt);
  }
  EXPECT_EQ(InvokedApi(R"({"query":"q","documents":["d"]})", kClassifier), std::nullopt)
      << "it scores no pairs";
}

TEST(Invocation, LooksAtTheBodysOwnFieldsOnly) {
  for (const char* body :
       {R"({"a":{"prompt":"x"}})", R"([{"prompt":"x"}])", R"({"a":"prompt"})", R"("prompt")",
        R"({"a":["prompt"],"b":"prompt"})", R"({"a":"\",\"prompt\":1"})", R"({"prompts":1})", "",
        "{", "}}]]{[", R"({"a\)"})
    EXPECT_EQ(InvokedApi(body, kText), std::nullopt) << body;
  EXPECT_EQ(InvokedApi(R"({"a":[{"b":"}"}],"c":"\\", "prompt" : "x"})", kText), Api::kCompletions);
}

TEST(OpenApi, ABodyOfSeveralKindsIsAnyOfThem) {
  const EndpointFacts facts{
      .path = "/invocations", .method = "POST", .summary = "", .bodies = InvokedApis(kText)};
  const Json document = OpenApiDocument(std::span(&facts, 1), {});
  const std::string text = document.Dump();
  EXPECT_THAT(text, testing::HasSubstr(
                        R"("schema":{"anyOf":[{"$ref":"#/components/schemas/ChatCompletion"},)"
                        R"({"$ref":"#/components/schemas/Completion"}]})"));
  EXPECT_THAT(text, testing::HasSubstr("text/event-stream"));
}

}  // namespace
}  // namespace pinion
