// The front end's information about the model and itself.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "tests/engine/serve/frontend_fixture.h"

namespace pinion {
namespace {

using testing::HasSubstr;

TEST_F(FrontendTest, TellsOfItsModelByName) {
  StartEngine();
  const Json model = *Json::Parse(BodyOf(Get(port_, "/v1/models/fake")));
  EXPECT_EQ(model.Find("id")->string(), "fake");
  EXPECT_EQ(model.Find("max_model_len")->integer(), 100);
  EXPECT_EQ(StatusOf(Get(port_, "/v1/models/%66ak%65")), "200");
  for (const char* other :
       {"/v1/models/other", "/v1/models/", "/v1/models/fake/x", "/v1/models/%6"}) {
    const std::string said = Get(port_, other);
    EXPECT_EQ(StatusOf(said), "404") << other;
    EXPECT_THAT(said, HasSubstr("model_not_found"));
  }
}

class NamedTwiceTest : public FrontendTest {
 protected:
  NamedTwiceTest() { aliases_ = {"gpt-4o"}; }
};

TEST_F(NamedTwiceTest, AnswersToEachNameAndSpeaksOfTheFirst) {
  StartEngine();
  const Json list = *Json::Parse(BodyOf(Get(port_, "/v1/models")));
  ASSERT_EQ(list.Find("data")->array().size(), 2u);
  EXPECT_EQ(list.Find("data")->array()[1].Find("id")->string(), "gpt-4o");
  EXPECT_EQ(Json::Parse(BodyOf(Get(port_, "/v1/models/gpt-4o")))->Find("id")->string(), "gpt-4o");
  const std::string said =
      Post(port_, "/v1/completions", R"({"prompt":"x","model":"gpt-4o","max_tokens":1})");
  EXPECT_EQ(StatusOf(said), "200");
  EXPECT_EQ(Json::Parse(BodyOf(said))->Find("model")->string(), "fake");
  EXPECT_THAT(Post(port_, "/v1/completions", R"({"prompt":"x","model":"other"})"),
              HasSubstr("this server has 'fake', 'gpt-4o'"));
}

TEST_F(FrontendTest, CountsTheParametersOfARequestOnce) {
  StartEngine();
  Ask("/v1/completions", R"({"prompt":["x","y"],"n":2,"max_tokens":3})");
  const auto metric = [this](const std::string& name) {
    return Metric("vllm:" + name + "{engine=\"0\",model_name=\"fake\"}");
  };
  EXPECT_EQ(metric("request_params_n_count"), "1");
  EXPECT_EQ(metric("request_params_n_sum"), "2");
  EXPECT_EQ(metric("request_max_num_generation_tokens_sum"), "3");
  EXPECT_EQ(metric("request_params_max_tokens_count"), "4") << "sequences, as in vLLM";
}

TEST_F(FrontendTest, TellsItsLoadAndSlots) {
  StartEngine();
  EXPECT_EQ(BodyOf(Get(port_, "/load")), R"({"server_load":0})");
  RawClient held(port_), other(port_);
  SendPost(held, R"({"prompt":"Held","n":2})");
  SendPost(other, R"({"prompt":"Held"})");
  WaitFor(engine_.live, 3);
  EXPECT_EQ(BodyOf(Get(port_, "/load")), R"({"server_load":2})") << "requests, not choices";
  Ask("/v1/completions", R"({"prompt":"x","max_tokens":1})");  // a step, after which counts come
  const Json slots = *Json::Parse(BodyOf(Get(port_, "/slots")));
  ASSERT_EQ(slots.array().size(), 4u);
  EXPECT_TRUE(slots.array()[2].Find("is_processing")->boolean());
  EXPECT_FALSE(slots.array()[3].Find("is_processing")->boolean());
  EXPECT_EQ(slots.array()[3].Find("n_ctx")->integer(), 100);
  EXPECT_EQ(StatusOf(Get(port_, "/slots?fail_on_no_slot=1")), "200");
}

TEST_F(FrontendTest, TellsOfItsTokenizerAndTemplate) {
  StartEngine();
  const Json info = *Json::Parse(BodyOf(Get(port_, "/tokenizer_info")));
  EXPECT_EQ(info.Find("eos_token")->string(), "<end>");
  EXPECT_EQ(info.Find("chat_template")->string(), "(the test renders)");
  const Json props = *Json::Parse(BodyOf(Get(port_, "/props")));
  EXPECT_EQ(props.Find("total_slots")->integer(), 4);
  EXPECT_EQ(props.Find("eos_token")->string(), "<end>");
  EXPECT_EQ(props.Find("default_generation_settings")->Find("n_ctx")->integer(), 100);
  const Json prompt = Ask("/apply-template", R"({"messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(prompt.Find("prompt")->string(), "user:hi;assistant:");
  EXPECT_EQ(StatusOf(Post(port_, "/apply-template", R"({"prompt":"x"})")), "400");
}

TEST_F(FrontendTest, DescribesItselfWhileTheModelLoads) {
  const std::string said = Get(port_, "/openapi.json");
  EXPECT_EQ(StatusOf(said), "200");
  const Json document = *Json::Parse(BodyOf(said));
  EXPECT_EQ(document.Find("openapi")->string(), "3.1.0");
  const Json& paths = *document.Find("paths");
  EXPECT_TRUE(paths.Find("/v1/completions")->Find("post"));
  EXPECT_TRUE(paths.Find("/openapi.json")->Find("get"));
  EXPECT_FALSE(paths.Find("/v1/embeddings")) << "the model generates text";
  EXPECT_FALSE(paths.Find("/sleep")) << "it is not enabled";
  const Json& body = *document.Find("components")->Find("schemas")->Find("Completion");
  EXPECT_EQ(body.Find("properties")->Find("echo")->Dump(),
            R"({"anyOf":[{"type":"boolean"},{"type":"null"}]})");
  EXPECT_EQ(body.Find("required")->Dump(), R"(["prompt"])");
  EXPECT_EQ(body.Find("additionalProperties")->Dump(), "false");
}

TEST_F(FrontendTest, ShowsTheTextsOfTokens) {
  StartEngine();
  const char* shown = R"("token_strs":["h","i"])";
  EXPECT_THAT(Post(port_, "/tokenize", R"({"prompt":"hi","return_token_strs":true})"),
              HasSubstr(shown));
  EXPECT_THAT(Post(port_, "/tokenize", R"({"prompt":"hi"})"),
              testing::HasSubstr(R"("token_strs":null)"));
}

}  // namespace
}  // namespace pinion
