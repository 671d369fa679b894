#include "engine/serve/frontend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "engine/base/strings.h"
#include "engine/base/version.h"
#include "engine/serve/response.h"
#include "tests/engine/serve/frontend_fixture.h"

namespace pinion {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST_F(FrontendTest, IsReadyOnlyOnceTheEngineIs) {
  EXPECT_EQ(StatusOf(Get(port_, "/health")), "503");
  EXPECT_EQ(StatusOf(Get(port_, "/v1/models")), "503");
  EXPECT_EQ(StatusOf(Post(port_, "/v1/completions", "{}")), "503");
  EXPECT_EQ(StatusOf(Get(port_, "/metrics")), "200");
  StartEngine();
  EXPECT_EQ(StatusOf(Get(port_, "/health")), "200");
}

TEST_F(FrontendTest, Completes) {
  StartEngine();
  const Json answer = Ask("/v1/completions", R"({"model":"fake","prompt":"hi","max_tokens":5})");
  EXPECT_EQ(TextOf(answer), "abcde");
  EXPECT_EQ(answer.Find("object")->string(), "text_completion");
  EXPECT_EQ(answer.Find("choices")->array()[0].Find("finish_reason")->string(), "length");
  EXPECT_EQ(answer.Find("usage")->Find("prompt_tokens")->integer(), 2);
  EXPECT_EQ(answer.Find("usage")->Find("completion_tokens")->integer(), 5);
  EXPECT_EQ(answer.Find("usage")->Find("total_tokens")->integer(), 7);
}

TEST_F(FrontendTest, LeavesTheEndTokenOutOfTheText) {
  StartEngine();
  const Json answer =
      Ask("/v1/completions", R"({"prompt":"hi","max_tokens":50,"skip_special_tokens":false})");
  EXPECT_EQ(TextOf(answer), "abcdefghijklmnopqrstuvwxyz");
  EXPECT_EQ(answer.Find("choices")->array()[0].Find("finish_reason")->string(), "stop");
  EXPECT_EQ(answer.Find("usage")->Find("completion_tokens")->integer(), 27);
}

TEST_F(FrontendTest, GivesEveryChoiceItsPlaceAndSeed) {
  StartEngine();
  const Json answer =
      Ask("/v1/completions", R"({"prompt":["x","yy"],"n":2,"seed":3,"max_tokens":2,"echo":true})");
  EXPECT_EQ(TextOf(answer, 0), "xde");
  EXPECT_EQ(TextOf(answer, 1), "xef");
  EXPECT_EQ(TextOf(answer, 2), "yyde");
  EXPECT_EQ(TextOf(answer, 3), "yyef");
  EXPECT_EQ(answer.Find("usage")->Find("prompt_tokens")->integer(), 3);
  EXPECT_EQ(answer.Find("usage")->Find("completion_tokens")->integer(), 8);
}

TEST_F(FrontendTest, StopsAtAStopStringAndTellsTheEngine) {
  StartEngine();
  const Json answer = Ask("/v1/completions", R"({"prompt":"x","max_tokens":90,"stop":["def"]})");
  EXPECT_EQ(TextOf(answer), "abc");
  const Json& choice = answer.Find("choices")->array()[0];
  EXPECT_EQ(choice.Find("finish_reason")->string(), "stop");
  EXPECT_EQ(choice.Find("stop_reason")->string(), "def");
  WaitFor(engine_.live, 0);
}

TEST_F(FrontendTest, StreamsOneEventPerTokenAndTheUsageLast) {
  StartEngine();
  const auto events = Events(Post(port_, "/v1/completions",
                                  R"({"prompt":"hi","max_tokens":3,"stream":true,
                                      "stream_options":{"include_usage":true}})"));
  ASSERT_EQ(events.size(), 5u);
  std::string text;
  for (size_t i = 0; i < 3; ++i) text += TextOf(*Json::Parse(events[i]));
  EXPECT_EQ(text, "abc");
  EXPECT_THAT(events[1], HasSubstr("\"finish_reason\":null"));
  EXPECT_THAT(events[2], HasSubstr("\"finish_reason\":\"length\""));
  EXPECT_THAT(events[3], AllOf(HasSubstr("\"choices\":[]"), HasSubstr("\"completion_tokens\":3")));
  EXPECT_EQ(events[4], "[DONE]");
}

TEST_F(FrontendTest, Chats) {
  StartEngine();
  const Json answer = Ask("/v1/chat/completions",
                          R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":4})");
  EXPECT_EQ(answer.Find("object")->string(), "chat.completion");
  const Json& message = *answer.Find("choices")->array()[0].Find("message");
  EXPECT_EQ(message.Find("role")->string(), "assistant");
  EXPECT_EQ(message.Find("content")->string(), "abcd");
  EXPECT_EQ(answer.Find("usage")->Find("prompt_tokens")->integer(), 18);  // user:hi;assistant:
}

TEST_F(FrontendTest, ChatStreamsItsRoleFirst) {
  StartEngine();
  const auto events =
      Events(Post(port_, "/v1/chat/completions",
                  R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":2,"stream":true})"));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_THAT(events[0], AllOf(HasSubstr("chat.completion.chunk"),
                               HasSubstr(R"("delta":{"role":"assistant","content":""})")));
  EXPECT_THAT(events[1], HasSubstr(R"("delta":{"content":"a"})"));
  EXPECT_THAT(events[2], HasSubstr("\"finish_reason\":\"length\""));
}

TEST_F(FrontendTest, ChatFillsTheModelsLengthByDefault) {
  StartEngine();
  const Json answer = Ask("/v1/chat/completions", R"({"messages":[{"role":"u","content":")" +
                                                      std::string(75, 'x') + R"("}]})");
  EXPECT_EQ(answer.Find("usage")->Find("total_tokens")->integer(),
            static_cast<int64_t>(kModelLength));
  EXPECT_EQ(answer.Find("choices")->array()[0].Find("finish_reason")->string(), "length");
}

TEST_F(FrontendTest, ReportsTheTemplatesException) {
  StartEngine();
  const std::string got =
      Post(port_, "/v1/chat/completions", R"({"messages":[{"role":"bad","content":"hi"}]})");
  EXPECT_EQ(StatusOf(got), "400");
  EXPECT_THAT(got, HasSubstr("TemplateError: bad role"));
}

TEST_F(FrontendTest, GivesLogprobsInBothForms) {
  StartEngine();
  const Json plain = Ask("/v1/completions", R"({"prompt":"x","max_tokens":2,"logprobs":2})");
  EXPECT_EQ(plain.Find("choices")->array()[0].Find("logprobs")->Dump(),
            R"({"text_offset":[0,1],"token_logprobs":[-0.5,-0.5],"tokens":["a","b"],)"
            R"("top_logprobs":[{"a":-0.5,"z":-2.0},{"b":-0.5,"z":-2.0}]})");
  const Json chat = Ask("/v1/chat/completions",
                        R"({"messages":[{"role":"u","content":"x"}],"max_tokens":1,
                            "logprobs":true,"top_logprobs":2})");
  EXPECT_EQ(
      chat.Find("choices")->array()[0].Find("logprobs")->Dump(),
      R"({"content":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[)"
      R"({"token":"a","logprob":-0.5,"bytes":[97]},{"token":"z","logprob":-2.0,"bytes":[122]}]}]})");
}

TEST(CompletionLogprobs, CountsOffsetsInCharacters) {
  const auto tokenizer =
      MakeTokenizer(*Json::Parse(R"({"model": {"type": "BPE", "vocab": {"é": 0, "😀b": 1, "c": 2},
                                 "merges": []}})"),
                    Json());
  ASSERT_TRUE(tokenizer);
  size_t offset = 0;
  CompletionLogprobs tokens(**tokenizer, 0);
  for (const int32_t id : {0, 1, 2}) tokens.Add({id, -1, {}}, offset);
  const Json logprobs = tokens.Take();
  EXPECT_EQ(logprobs.Find("text_offset")->Dump(), "[0,1,3]");
  EXPECT_EQ(offset, 4u);
}

TEST_F(FrontendTest, RefusesWithTheRightStatus) {
  StartEngine();
  const auto post = [&](const char* body) {
    return StatusOf(Post(port_, "/v1/completions", body));
  };
  EXPECT_EQ(post("not json"), "400");
  EXPECT_EQ(post(""), "400");
  EXPECT_EQ(post("\"text\""), "400");
  EXPECT_EQ(post("{\"prompt\":\"\xff\xfe\"}"), "400");
  EXPECT_EQ(post(R"({"prompt":"x","model":"other"})"), "404");
  EXPECT_EQ(post(R"({"prompt":""})"), "400");
  EXPECT_EQ(post(R"({"prompt":[257]})"), "400");
  EXPECT_EQ(post(R"({"prompt":"x","logit_bias":{"257":1}})"), "400");
  EXPECT_EQ(post(R"({"prompt":"x","max_tokens":100})"), "400");
  EXPECT_EQ(post(R"({"prompt":"!refused by the engine"})"), "400");
  EXPECT_EQ(post((R"({"prompt":")" + std::string(5000, 'x') + "\"}").c_str()), "400");
  EXPECT_EQ(post(std::string(100'000, '[').c_str()), "400");
  for (const std::string& got : {Get(port_, "/v1/completions"), Get(port_, "/tokenize")}) {
    EXPECT_EQ(StatusOf(got), "405");
    EXPECT_THAT(got, HasSubstr("\r\nAllow: POST\r\n"));
  }
  for (const std::string& got : {Post(port_, "/health", ""), Post(port_, "/v1/models", "{}")}) {
    EXPECT_EQ(StatusOf(got), "405");
    EXPECT_THAT(got, HasSubstr("\r\nAllow: GET, HEAD\r\n"));
  }
  EXPECT_EQ(StatusOf(Get(port_, "/nowhere")), "404");
  EXPECT_EQ(StatusOf(Post(port_, "/sleep", "")), "404");
  EXPECT_EQ(post(R"({"prompt":"x"})"), "200");
}

TEST_F(FrontendTest, SaysThatABodyIsEmpty) {
  StartEngine();
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"})
    for (const char* body : {"", " \r\n"})
      EXPECT_THAT(Post(port_, path, body), HasSubstr("the body is empty")) << path;
}

TEST_F(FrontendTest, BlamesMaxCompletionTokensByItsName) {
  StartEngine();
  const std::string start = R"({"messages":[{"role":"user","content":"hi"}],)";
  for (const char* most : {"0", "-1", "100"}) {
    const std::string got = Post(port_, "/v1/chat/completions",
                                 StrCat(start, R"("max_completion_tokens":)", most, "}"));
    EXPECT_EQ(StatusOf(got), "400");
    EXPECT_THAT(got, HasSubstr(R"("param":"max_completion_tokens")")) << most;
  }
}

TEST_F(FrontendTest, TokenizesAndBack) {
  StartEngine();
  const Json ids = Ask("/tokenize", R"({"prompt":"ab"})");
  EXPECT_EQ(ids.Find("tokens")->Dump(), "[97,98]");
  EXPECT_EQ(ids.Find("count")->integer(), 2);
  EXPECT_EQ(
      Ask("/tokenize", R"({"messages":[{"role":"u","content":"x"}]})").Find("count")->integer(),
      14);
  EXPECT_EQ(Ask("/detokenize", R"({"tokens":[97,98]})").Find("prompt")->string(), "ab");
  EXPECT_EQ(StatusOf(Post(port_, "/detokenize", R"({"tokens":["a"]})")), "400");
  EXPECT_EQ(StatusOf(Post(port_, "/detokenize", R"({"tokens":[256]})")), "200");
  EXPECT_THAT(BodyOf(Post(port_, "/detokenize", R"({"tokens":[97,257]})")),
              HasSubstr("'tokens' holds token 257, want ids below 257"));
  EXPECT_EQ(StatusOf(Post(port_, "/detokenize", R"({"model":"x","tokens":[97]})")), "404");
  EXPECT_EQ(StatusOf(Post(port_, "/detokenize", "[]")), "400");
}

TEST_F(FrontendTest, ListsItsModelAndInfo) {
  StartEngine();
  const std::string models = Get(port_, "/v1/models");
  EXPECT_THAT(models, AllOf(HasSubstr("\"id\":\"fake\""), HasSubstr("\"max_model_len\":100")));
  EXPECT_THAT(Get(port_, "/server_info"),
              AllOf(HasSubstr("\"isa\":\"fake\""), HasSubstr("\"steps\"")));
  EXPECT_THAT(Get(port_, "/version"), HasSubstr(StrCat("{\"version\":\"", Version(), "\"}")));
}

TEST_F(FrontendTest, AbortsTheRequestsOfADisconnectedClient) {
  StartEngine();
  for (const char* stream : {"false", "true"}) {
    const int before = engine_.aborted;
    RawClient client(port_);
    SendPost(client, StrCat("{\"prompt\":\"Held\",\"n\":3,\"stream\":", stream, "}"));
    WaitFor(engine_.live, 3);
    client.Close();
    WaitFor(engine_.aborted, before + 3);
  }
  EXPECT_THAT(Get(port_, "/metrics"),
              HasSubstr("finished_reason=\"abort\",model_name=\"fake\"} 6"));
}

TEST_F(FrontendTest, HeldRequestsDoNotHoldUpOthers) {
  StartEngine();
  RawClient held(port_);
  SendPost(held, R"({"prompt":"Held"})");
  WaitFor(engine_.live, 1);
  EXPECT_EQ(TextOf(Ask("/v1/completions", R"({"prompt":"x","max_tokens":2})")), "ab");
}

TEST_F(FrontendTest, FailsLiveRequestsWhenTheEngineDies) {
  StartEngine();
  RawClient held(port_);
  SendPost(held, R"({"prompt":"Held"})");
  WaitFor(engine_.live, 1);
  server_->Post([this] { Enter(EngineState::kFailed, "the engine died"); });
  const std::string answer = held.ReadUntil("}}");
  EXPECT_EQ(StatusOf(answer), "503");
  EXPECT_THAT(answer, AllOf(HasSubstr("the engine died"), HasSubstr("Retry-After: ")));
  EXPECT_EQ(StatusOf(Post(port_, "/v1/completions", R"({"prompt":"x"})")), "503");
  EXPECT_EQ(StatusOf(Get(port_, "/health")), "503");
}

TEST_F(FrontendTest, EndsAFailedStreamWithAnErrorAndDone) {
  StartEngine();
  RawClient held(port_);
  SendPost(held, R"({"prompt":"Held","stream":true})");
  WaitFor(engine_.live, 1);
  OnLoop([this] { Enter(EngineState::kRestarting, "the engine is restarted"); });
  const auto events = Events(held.ReadUntil("0\r\n\r\n"));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_THAT(events[0], AllOf(HasSubstr("\"error\":{"), HasSubstr("the engine is restarted")));
  EXPECT_EQ(events[1], "[DONE]");
}

TEST_F(FrontendTest, SendsStreamHeadersBeforeTheFirstToken) {
  StartEngine();
  RawClient held(port_);
  SendPost(held, R"({"messages":[{"role":"Held","content":"x"}],"n":2,"stream":true})",
           "chat/completions");
  const std::string got = held.ReadUntil("\"index\":1");
  EXPECT_EQ(StatusOf(got), "200");
  EXPECT_THAT(got, HasSubstr("\"role\":\"assistant\""));
}

TEST_F(FrontendTest, HoldsRequestsDuringARestartAndSendsThemInOrder) {
  StartEngine();
  OnLoop([this] { Enter(EngineState::kRestarting, "restarting"); });
  EXPECT_EQ(StatusOf(Get(port_, "/health")), "503");
  RawClient first(port_), second(port_), leaves(port_);
  size_t waiting = 0;
  const auto wait_for = [&](size_t wanted) {
    for (int i = 0; i < 2000 && waiting != wanted; ++i) {
      OnLoop([&] { waiting = frontend_->pending(); });
      std::this_thread::yield();
    }
    EXPECT_EQ(waiting, wanted);
  };
  SendPost(first, R"({"prompt":"x","max_tokens":1,"n":2})");
  wait_for(2);
  SendPost(second, R"({"prompt":"y","max_tokens":1})");
  wait_for(3);
  SendPost(leaves, R"({"prompt":"z","max_tokens":1})");
  wait_for(4);
  EXPECT_EQ(Metric("vllm:num_requests_waiting"), "4");
  leaves.Close();
  wait_for(3);
  std::string order;
  OnLoop([&] {
    engine_.on_add = [&](const Request& request) {
      order += static_cast<char>(request.prompt_ids.at(0));
    };
    Enter(EngineState::kReady, "");
  });
  EXPECT_EQ(StatusOf(first.ReadUntil("}}")), "200");
  EXPECT_EQ(StatusOf(second.ReadUntil("}}")), "200");
  EXPECT_EQ(order, "xxy");
}

TEST_F(FrontendTest, RefusesOnlyNewRequestsWhileTheEngineGoesToSleep) {
  StartEngine();
  RawClient held(port_);
  SendPost(held, R"({"prompt":"Held"})");
  WaitFor(engine_.live, 1);
  OnLoop([this] { Enter(EngineState::kSleeping, "the server sleeps; POST /wake_up first"); });
  const std::string got = Post(port_, "/v1/completions", R"({"prompt":"x"})");
  EXPECT_EQ(StatusOf(got), "503");
  EXPECT_THAT(got, HasSubstr("the server sleeps"));
  EXPECT_EQ(engine_.live, 1);  // may finish
  OnLoop([this] { Enter(EngineState::kReady, ""); });
  EXPECT_EQ(StatusOf(Post(port_, "/v1/completions", R"({"prompt":"x"})")), "200");
}

TEST_F(FrontendTest, EndsARequestAtItsDeadline) {
  StartEngine();
  const std::string got = Post(port_, "/v1/completions", R"({"prompt":"Held","timeout":0.25})");
  EXPECT_EQ(StatusOf(got), "504");
  EXPECT_THAT(got, HasSubstr("no complete answer within 0.25 s (timeout)"));
  const std::string stream =
      Post(port_, "/v1/completions", R"({"prompt":"Held","timeout":0.01,"stream":true})");
  EXPECT_THAT(stream, HasSubstr("no complete answer within 0.01 s (timeout)"));
  WaitFor(engine_.live, 0);
  EXPECT_EQ(Metric("pinion:deadline_exceeded_total"), "2");
  EXPECT_EQ(StatusOf(Post(port_, "/v1/completions", R"({"prompt":"x","timeout":0})")), "400");
  // Waiting for a new engine process counts.
  OnLoop([this] { Enter(EngineState::kRestarting, "restarting"); });
  EXPECT_EQ(StatusOf(Post(port_, "/v1/completions", R"({"prompt":"x","timeout":0.01})")), "504");
}

TEST_F(FrontendTest, CancelsOnlyTheClientsOwnChoices) {
  StartEngine();
  RawClient before(port_), leaves(port_), after(port_);
  for (int live = 0; const auto& client : {&before, &leaves, &after}) {
    SendPost(*client, R"({"prompt":["Held","Held"],"n":2})");
    WaitFor(engine_.live, live += 4);
  }
  leaves.Close();
  Await([this] { return engine_.aborted >= 4; });
  Ask("/v1/completions", R"({"prompt":"x"})");  // by its answer the abort is over
  EXPECT_EQ(engine_.aborted, 4);
}

TEST_F(FrontendTest, RefusesOtherMediaTypes) {
  StartEngine();
  const auto post = [&](const std::string& header) {
    return StatusOf(
        Exchange(port_, StrCat("POST /v1/completions HTTP/1.1\r\nConnection: close\r\n", header,
                               "Content-Length: 14\r\n\r\n{\"prompt\":\"x\"}")));
  };
  EXPECT_EQ(post(""), "415");
  EXPECT_EQ(post("Content-Type: text/plain\r\n"), "415");
  EXPECT_EQ(post("Content-Type: application/jsonp\r\n"), "415");
  EXPECT_EQ(post("Content-Type: Application/JSON ; charset=utf-8\r\n"), "200");
}

TEST_F(FrontendTest, SurvivesDamagedRequests) {
  StartEngine();
  const std::string body =
      R"({"model":"fake","prompt":["ab",[97,98]],"n":2,"max_tokens":3,"stop":["x"],"seed":1,)"
      R"("logit_bias":{"5":1.5},"logprobs":1,"stream":false,"messages":[{"role":"u","content":)"
      R"([{"type":"text","text":"hi"}]}],"tools":[{"type":"function",)"
      R"("function":{"name":"f"}}]})";
  constexpr std::string_view kBytes = "{}[]\",:019.-ent\\\xff";
  std::mt19937 random(20261120);
  for (int round = 0; round < 600; ++round) {
    const bool chat = random() % 2 == 0;
    std::string request =
        StrCat("POST /v1/", chat ? "chat/" : "",
               "completions HTTP/1.1\r\nContent-Type: application/json\r\n",
               "Content-Length: ", body.size(), "\r\nConnection: close\r\n\r\n", body);
    // Mostly the body; sometimes anything, the header included.
    const size_t from = random() % 4 == 0 ? 0 : request.size() - body.size();
    for (size_t i = 0; i <= random() % 3; ++i)
      request[from + random() % (request.size() - from)] = kBytes[random() % kBytes.size()];
    if (random() % 10 == 0) request.resize(random() % request.size());
    RawClient client(port_);
    client.Send(request);
    client.CloseWriting();
    client.ReadAll();
  }
  EXPECT_EQ(StatusOf(Post(port_, "/v1/completions", R"({"prompt":"x"})")), "200");
  WaitFor(engine_.live, 0);
}

TEST_F(FrontendTest, CountsServedRequests) {
  StartEngine();
  Ask("/v1/completions", R"({"prompt":"x","max_tokens":3})");
  const std::string metrics = Get(port_, "/metrics");
  EXPECT_THAT(metrics,
              HasSubstr("vllm:generation_tokens_total{engine=\"0\",model_name=\"fake\"} 3"));
  EXPECT_THAT(
      metrics,
      HasSubstr("vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"fake\"} 1"));
  EXPECT_THAT(
      metrics,
      HasSubstr("vllm:inter_token_latency_seconds_count{engine=\"0\",model_name=\"fake\"} 2"));
  EXPECT_THAT(metrics, HasSubstr("finished_reason=\"length\",model_name=\"fake\"} 1"));
  EXPECT_THAT(metrics, HasSubstr("vllm:num_requests_running{engine=\"0\",model_name=\"fake\"} 0"));
}

}  // namespace
}  // namespace pinion
