// Fields of requests that vLLM's clients send, as the engine and the answer see them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "tests/engine/serve/frontend_fixture.h"

namespace pinion {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST_F(FrontendTest, EchoesThePromptsLogProbabilities) {
  StartEngine();
  const Json answer =
      Ask("/v1/completions", R"({"prompt":["xz","hijk"],"max_tokens":1,"echo":true,"logprobs":1})");
  EXPECT_EQ(TextOf(answer, 1), "hijka");
  const Json& logprobs = *answer.Find("choices")->array()[1].Find("logprobs");
  EXPECT_EQ(logprobs.Find("tokens")->Dump(), R"(["h","i","j","k","a"])");
  EXPECT_EQ(logprobs.Find("token_logprobs")->Dump(), "[null,-1.0,-2.0,-3.0,-0.5]");
  EXPECT_EQ(logprobs.Find("text_offset")->Dump(), "[0,1,2,3,4]");
  EXPECT_EQ(logprobs.Find("top_logprobs")->Dump(),
            R"([null,{"y":-0.25,"i":-1.0},{"y":-0.25,"j":-2.0},{"y":-0.25,"k":-3.0},{"a":-0.5}])");
  EXPECT_TRUE(answer.Find("choices")->array()[1].Find("prompt_logprobs")->is_null());
}

TEST_F(FrontendTest, EchoesWithoutGenerating) {
  StartEngine();
  const Json answer =
      Ask("/v1/completions", R"({"prompt":"hij","max_tokens":0,"echo":true,"logprobs":0,"n":2})");
  for (const Json& choice : answer.Find("choices")->array()) {
    EXPECT_EQ(choice.Find("text")->string(), "hij");
    EXPECT_EQ(choice.Find("finish_reason")->string(), "length");
    EXPECT_EQ(choice.Find("logprobs")->Find("token_logprobs")->Dump(), "[null,-1.0,-2.0]");
  }
  EXPECT_EQ(answer.Find("usage")->Find("completion_tokens")->integer(), 0);
  const std::string whole(kModelLength, 'x');  // nothing follows, so that it may fill the model
  EXPECT_EQ(TextOf(Ask("/v1/completions",
                       StrCat(R"({"max_tokens":0,"echo":true,"prompt":")", whole, "\"}"))),
            whole);
}

TEST_F(FrontendTest, TellsThePromptsLogProbabilities) {
  StartEngine();
  const std::string rated = R"([null,{"105":{"logprob":-1.0,"rank":2,"decoded_token":"i"},)"
                            R"("121":{"logprob":-0.25,"rank":1,"decoded_token":"y"}}])";
  const Json answer =
      Ask("/v1/completions", R"({"prompt":"hi","max_tokens":1,"prompt_logprobs":1,"n":2})");
  for (const Json& choice : answer.Find("choices")->array())
    EXPECT_EQ(choice.Find("prompt_logprobs")->Dump(), rated);
  const Json chat = Ask("/v1/chat/completions",
                        R"({"messages":[{"role":"u","content":"i"}],"prompt_logprobs":0,
                            "max_tokens":1})");
  ASSERT_TRUE(chat.Find("prompt_logprobs"));
  EXPECT_EQ(chat.Find("prompt_logprobs")->array().size(), std::string("u:i;assistant:").size());
}

TEST_F(FrontendTest, ReturnsTokenIdsOfPromptAndOutput) {
  StartEngine();
  const Json answer =
      Ask("/v1/completions", R"({"prompt":["hi","x"],"max_tokens":2,"return_token_ids":true})");
  const Json::Array& choices = answer.Find("choices")->array();
  EXPECT_EQ(choices[0].Find("prompt_token_ids")->Dump(), "[104,105]");
  EXPECT_EQ(choices[1].Find("prompt_token_ids")->Dump(), "[120]");
  EXPECT_EQ(choices[1].Find("token_ids")->Dump(), "[97,98]");
  const char* chat = R"({"messages":[{"role":"u","content":""}],"add_generation_prompt":false,
                         "max_tokens":2,"return_token_ids":true)";
  const Json whole = Ask("/v1/chat/completions", StrCat(chat, "}"));
  EXPECT_EQ(whole.Find("prompt_token_ids")->Dump(), "[117,58,59]");
  EXPECT_EQ(whole.Find("choices")->array()[0].Find("token_ids")->Dump(), "[97,98]");
  const auto events =
      Events(Post(port_, "/v1/chat/completions", StrCat(chat, R"(,"stream":true})")));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_THAT(events[0], HasSubstr(R"("prompt_token_ids":[117,58,59])"));
  EXPECT_THAT(events[1], HasSubstr(R"("token_ids":[97])"));
  EXPECT_THAT(events[2], HasSubstr(R"("token_ids":[98])"));
  const auto plain = Events(Post(port_, "/v1/completions",
                                 R"({"prompt":"hi","max_tokens":2,"return_token_ids":true,
                                     "stream":true})"));
  ASSERT_EQ(plain.size(), 3u);
  EXPECT_THAT(plain[0], HasSubstr(R"("prompt_token_ids":[104,105],"token_ids":[97])"));
  EXPECT_THAT(plain[1], testing::Not(HasSubstr("prompt_token_ids")));
}

TEST_F(FrontendTest, NamesTokensByTheirIds) {
  StartEngine();
  const Json answer = Ask("/v1/completions", R"({"prompt":"x","max_tokens":1,"logprobs":1,
                                                 "return_tokens_as_token_ids":true})");
  const Json& logprobs = *answer.Find("choices")->array()[0].Find("logprobs");
  EXPECT_EQ(logprobs.Find("tokens")->Dump(), R"(["token_id:97"])");
  EXPECT_EQ(logprobs.Find("top_logprobs")->Dump(), R"([{"token_id:97":-0.5}])");
  const Json chat = Ask("/v1/chat/completions",
                        R"({"messages":[{"role":"u","content":"x"}],"max_tokens":1,"logprobs":true,
                            "return_tokens_as_token_ids":true})");
  const Json& tokens = *chat.Find("choices")->array()[0].Find("logprobs")->Find("content");
  EXPECT_EQ(tokens.array()[0].Find("token")->string(), "token_id:97");
}

TEST_F(FrontendTest, TellsTheUsageInEveryEventIfAsked) {
  StartEngine();
  const auto events = Events(Post(port_, "/v1/completions",
                                  R"({"prompt":"hi","max_tokens":2,"stream":true,"stream_options":
                                      {"include_usage":true,"continuous_usage_stats":true}})"));
  ASSERT_EQ(events.size(), 4u);
  for (size_t i = 0; i < 2; ++i) {
    const Json event = *Json::Parse(events[i]);
    EXPECT_EQ(event.Find("usage")->Find("prompt_tokens")->integer(), 2);
    EXPECT_EQ(event.Find("usage")->Find("completion_tokens")->integer(), static_cast<int>(i) + 1);
  }
}

TEST_F(FrontendTest, TruncatesPrompts) {
  std::vector<std::vector<int32_t>> prompts;
  engine_.on_add = [&](const Request& request) { prompts.push_back(request.prompt_ids); };
  StartEngine();
  const auto truncated = [&](const std::string& fields) {
    prompts.clear();
    const std::string text(kModelLength + 20, 'x');
    Ask("/v1/completions", StrCat(R"({"max_tokens":1,"prompt":"ab)", text, "yz\",", fields, "}"));
    return prompts.empty() ? std::string() : tokenizer_.Decode(prompts[0], false);
  };
  EXPECT_EQ(truncated(R"("truncate_prompt_tokens":3)"), "xyz");
  EXPECT_EQ(truncated(R"("truncate_prompt_tokens":3,"truncation_side":"right")"), "abx");
  EXPECT_EQ(truncated(R"("truncate_prompt_tokens":-1)").size(), kModelLength - 1);
  EXPECT_EQ(truncated(R"("truncate_prompt_tokens":101)"), "") << "more than the model's length";
  EXPECT_EQ(truncated(R"("seed":1)"), "");
}

TEST_F(FrontendTest, KeepsTheTokenizersBeginningOfTruncatedTextsAlone) {
  std::vector<std::vector<int32_t>> prompts;
  engine_.on_add = [&](const Request& request) { prompts.push_back(request.prompt_ids); };
  StartEngine();
  // 256 is special: of ids it is the client's own, whose last ones are asked for.
  Ask("/v1/completions", R"({"max_tokens":1,"prompt":[256,97,98],"truncate_prompt_tokens":2})");
  EXPECT_THAT(prompts, testing::ElementsAre(testing::ElementsAre(97, 98)));
}

TEST_F(FrontendTest, WholeAnswersHaveEveryMemberThatClientsKnow) {
  StartEngine();
  const auto is_null = [](const Json& object, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      const Json* member = object.Find(name);
      EXPECT_TRUE(member && member->is_null()) << name;
    }
  };
  const Json text = Ask("/v1/completions", R"({"prompt":"x","max_tokens":2})");
  is_null(text, {"service_tier", "system_fingerprint"});
  is_null(text.Find("choices")->array()[0], {"prompt_logprobs", "prompt_token_ids", "token_ids"});
  const std::string body = R"({"messages":[{"role":"user","content":"x"}],"max_tokens":2)";
  const Json chat = Ask("/v1/chat/completions", body + "}");
  is_null(chat, {"service_tier", "system_fingerprint", "prompt_logprobs", "prompt_token_ids"});
  const Json& choice = chat.Find("choices")->array()[0];
  is_null(choice, {"token_ids"});
  is_null(*choice.Find("message"), {"refusal", "reasoning", "reasoning_content"});
  EXPECT_THAT(Post(port_, "/v1/chat/completions", body + R"(,"stream":true})"),
              testing::Not(HasSubstr("token_ids")))
      << "streams say what there is";
}

TEST_F(FrontendTest, EchoesTheLastMessageOfAChat) {
  StartEngine();
  const std::string body =
      R"({"max_tokens":3,"n":2,"echo":true,"continue_final_message":true,"logprobs":true,
          "messages":[{"role":"user","content":"x"},{"role":"assistant","content":"So "}])";
  const Json answer = Ask("/v1/chat/completions", body + "}");
  for (const Json& choice : answer.Find("choices")->array()) {
    EXPECT_EQ(choice.Find("message")->Find("content")->string(), "So abc");
    EXPECT_EQ(choice.Find("logprobs")->Find("content")->array().size(), 3u);
  }
  std::string streamed;
  for (const std::string& event :
       Events(Post(port_, "/v1/chat/completions", body + R"(,"stream":true,"seed":0})"))) {
    if (event == "[DONE]") continue;
    const Json parsed = *Json::Parse(event);
    const Json& choice = parsed.Find("choices")->array()[0];
    const Json* content = choice.Find("delta")->Find("content");
    if (choice.Find("index")->integer() == 0 && content) streamed += content->string();
  }
  EXPECT_EQ(streamed, "So abc");
}

TEST_F(FrontendTest, HandsTheEngineSaltAndBadWords) {
  Request seen;
  engine_.on_add = [&](const Request& request) { seen = request; };
  StartEngine();
  Ask("/v1/completions", R"({"prompt":"x","max_tokens":1,"cache_salt":"mine","bad_words":["no"],
                             "allowed_token_ids":[5]})");
  EXPECT_EQ(seen.cache_salt, "mine");
  EXPECT_EQ(seen.params.bad_words_ids, (std::vector<std::vector<int32_t>>{{'n', 'o'}}));
  EXPECT_EQ(seen.params.allowed_token_ids, std::vector<int32_t>{5});
  EXPECT_EQ(StatusOf(Post(port_, "/v1/completions", R"({"prompt":"x","allowed_token_ids":[257]})")),
            "400");
}

TEST_F(FrontendTest, CountsFieldsThatAreUnknown) {
  StartEngine();
  const std::string said = Post(port_, "/v1/completions", R"({"prompt":"x","min_pp":1})");
  EXPECT_EQ(StatusOf(said), "400");
  EXPECT_THAT(said, AllOf(HasSubstr("'min_pp' is not a field"), HasSubstr("unknown_parameter")));
  EXPECT_EQ(Metric("pinion:unknown_fields_total{model_name=\"fake\",outcome=\"refused\"}"), "1");
}

class LenientFrontendTest : public FrontendTest {
 protected:
  LenientFrontendTest() { limits_.ignore_unknown_fields = true; }
};

TEST_F(LenientFrontendTest, CountsFieldsThatAreIgnored) {
  StartEngine();
  EXPECT_EQ(TextOf(Ask("/v1/completions", R"({"prompt":"x","min_pp":1,"x":2,"max_tokens":1})")),
            "a");
  EXPECT_EQ(Metric("pinion:unknown_fields_total{model_name=\"fake\",outcome=\"ignored\"}"), "2");
}

TEST_F(FrontendTest, EndsWithTheFirstLineBehindItsLimitOfTime) {
  engine_.line = 4;
  engine_.token_ns = 10'000'000;  // lines end 40, 90 and 140 ms after the first token
  StartEngine();
  const auto content = [this](const char* more) {
    const std::string body = StrCat(R"({"prompt":"x","n_predict":20)", more, "}");
    const Json answer = Ask("/completion", body);
    EXPECT_EQ(answer.Find("stop_type")->string(), "limit") << more;
    std::string streamed;
    for (const std::string& event :
         Events(Post(port_, "/completion", StrCat(R"({"stream":true,)", body.substr(1)))))
      streamed += Json::Parse(event)->Find("content")->string();
    EXPECT_EQ(streamed, answer.Find("content")->string()) << more;
    return streamed;
  };
  const std::string all = "abcd\nfghi\nklmn\npqrs\n";
  EXPECT_EQ(content(R"(,"t_max_predict_ms":60)"), all.substr(0, 10));
  EXPECT_EQ(content(R"(,"t_max_predict_ms":1)"), all.substr(0, 5));
  EXPECT_EQ(content(R"(,"t_max_predict_ms":90)"), all.substr(0, 15)) << "as long is not longer";
  EXPECT_EQ(content(R"(,"t_max_predict_ms":0)"), all);
  EXPECT_EQ(content(""), all);
}

}  // namespace
}  // namespace pinion
