// The whole server in one process: front end and HTTP on one thread, a fake engine behind the link
// on another, clients over loopback.

#include "engine/serve/frontend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <random>
#include <thread>

#include "engine/base/strings.h"
#include "engine/base/version.h"
#include "engine/serve/admin.h"
#include "engine/serve/engine_link.h"
#include "engine/serve/response.h"
#include "engine/serve/worker.h"
#include "tests/engine/serve/client.h"
#include "tests/engine/serve/fakes.h"

namespace pinion {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr size_t kModelLength = 100;

class FrontendTest : public testing::Test {
 protected:
  void SetUp() override {
    HttpOptions http;
    http.port = 0;
    server_ = *HttpServer::Listen(http, [this](HttpRequest request, auto reply) {
      if (!admin_->Handle(request, reply)) frontend_->Handle(std::move(request), std::move(reply));
    });
    ServedModel model{"fake", "somewhere", 257, *ReadApiDefaults(std::nullopt)};
    pool_ = std::make_unique<WorkerPool>(
        WorkerPool::Options{3, 0, [this](const ChatRequest& chat) { return RenderChat(chat); }});
    frontend_ = std::make_unique<Frontend>(
        model, tokenizer_, limits_, *pool_, *server_, std::make_shared<MemoryBudget>(64 << 20),
        [this](const LinkMessage& message) { link_->Send(message); });
    AdminApi::Actions actions;
    actions.send = [this](const LinkMessage& message) { link_->Send(message); };
    admin_ = std::make_unique<AdminApi>(*server_, FaultOptions(), std::move(actions));
    const auto ends = *MakeLinkPair();
    link_ = std::make_unique<EngineLink>(
        *server_, ends.first,
        EngineLink::Callbacks{
            [this](LinkMessage message) {
              const bool ready = std::holds_alternative<ReadyMessage>(message);
              if (!admin_->OnMessage(message)) frontend_->OnMessage(std::move(message));
              if (ready) Enter(EngineState::kReady, "");
            },
            [this](const std::string&) { Enter(EngineState::kFailed, "the engine died"); }});
    engine_end_ = std::make_unique<LinkSocket>(ends.second);
    port_ = server_->port();
    http_thread_ = std::thread([this] { server_->Run(); });
  }

  void Enter(EngineState state, const std::string& reason) {
    frontend_->OnEngineState(state, reason);
    admin_->OnEngineState(state, reason);
  }

  void StartEngine() {
    engine_end_->Send(ReadyMessage{kModelLength, 1000, "{\"isa\":\"fake\"}"});
    engine_thread_ = std::thread([this] {
      ServeLink(engine_, *engine_end_);
      engine_end_.reset();
    });
    Await([this] { return StatusOf(Get(port_, "/health")) == "200"; });
  }

  void TearDown() override {
    server_->Post([this] { server_->Stop(); });
    http_thread_.join();
    pool_.reset();
    link_.reset();  // the engine's loop ends with the link
    if (engine_thread_.joinable()) engine_thread_.join();
    server_.reset();
  }

  Result<std::string> RenderChat(const ChatRequest& chat) {
    if (template_ends_.valid()) {
      template_runs_ = 1;
      template_ran_out_ =
          template_ends_.wait_for(std::chrono::seconds(20)) == std::future_status::timeout;
    }
    std::string text;
    for (const Json& message : chat.messages.array()) {
      if (message.Find("role")->string() == "bad")
        return Fail(ErrorCode::kFailed, "TemplateError: bad role");
      text += StrCat(message.Find("role")->string(), ":", message.Find("content")->string(), ";");
    }
    return text + (chat.kwargs.Find("add_generation_prompt")->boolean() ? "assistant:" : "");
  }

  Json Ask(std::string_view path, std::string_view body) {
    auto json = Json::Parse(BodyOf(Post(port_, path, body)));
    EXPECT_TRUE(json) << body;
    return json ? *json : Json();
  }
  std::string TextOf(const Json& answer, size_t choice = 0) {
    const Json* choices = answer.Find("choices");
    if (!choices || choices->array().size() <= choice) return "no choice: " + answer.Dump();
    return choices->array()[choice].Find("text")->string();
  }
  // Payloads of the "data:" lines, without chunk framing.
  std::vector<std::string> Events(const std::string& response) {
    std::vector<std::string> events;
    for (size_t at = 0; (at = response.find("data: ", at)) != std::string::npos;) {
      const size_t end = response.find("\n\n", at);
      events.push_back(response.substr(at + 6, end - at - 6));
      at = end;
    }
    return events;
  }
  void WaitFor(const std::atomic<int>& value, int wanted) {
    Await([&] { return value == wanted; });
    EXPECT_EQ(value, wanted);
  }

  // Runs on the event loop's thread, and waits for it.
  void OnLoop(const std::function<void()>& call) {
    std::promise<void> done;
    server_->Post([&] {
      call();
      done.set_value();
    });
    done.get_future().wait();
  }
  void SendPost(RawClient& client, std::string_view body, std::string_view path = "completions") {
    client.Send(StrCat("POST /v1/", path, " HTTP/1.1\r\nContent-Type: application/json\r\n",
                       "Content-Length: ", body.size(), "\r\n\r\n", body));
  }
  std::string Metric(const std::string& name) {
    const std::string all = BodyOf(Get(port_, "/metrics"));
    const size_t at = all.find("\n" + name);
    if (at == std::string::npos) return "no metric " + name;
    const size_t end = all.find('\n', at + 1), value = all.rfind(' ', end);
    return all.substr(value + 1, end - value - 1);
  }

  FrontLimits limits_;
  ByteTokenizer tokenizer_;
  FakeEngine engine_;
  std::shared_future<void> template_ends_;  // unset: templates end at once
  std::atomic<int> template_runs_ = 0;
  std::atomic<bool> template_ran_out_ = false;
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<Frontend> frontend_;
  std::unique_ptr<AdminApi> admin_;
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<EngineLink> link_;
  std::unique_ptr<LinkSocket> engine_end_;
  uint16_t port_ = 0;
  std::thread http_thread_, engine_thread_;
};

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
  const Json logprobs =
      CompletionLogprobs(**tokenizer, {{0, -1, {}}, {1, -1, {}}, {2, -1, {}}}, offset);
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
  EXPECT_EQ(StatusOf(Get(port_, "/v1/completions")), "405");
  EXPECT_EQ(StatusOf(Post(port_, "/health", "")), "405");
  EXPECT_EQ(StatusOf(Get(port_, "/nowhere")), "404");
  EXPECT_EQ(StatusOf(Post(port_, "/sleep", "")), "404");
  EXPECT_EQ(post(R"({"prompt":"x"})"), "200");
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
  EXPECT_THAT(Get(port_, "/metrics"), HasSubstr("finished_reason=\"abort\"} 6"));
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

class BoundedFrontendTest : public FrontendTest {
 protected:
  BoundedFrontendTest() {
    limits_.max_num_queued_reqs = 3;
    limits_.max_num_queued_tokens = 50;
    limits_.max_choice_tokens = 200;
    limits_.max_logit_bias = 2;
    limits_.max_stop = 2;
    limits_.max_stop_token_ids = 2;
  }
};

TEST_F(BoundedFrontendTest, RejectsOnceInTheMetric) {
  StartEngine();
  RawClient held(port_);
  SendPost(held, R"({"prompt":"Held","n":2})");
  WaitFor(engine_.live, 2);
  const std::string got = Post(port_, "/v1/completions", R"({"prompt":"x","n":2})");
  EXPECT_EQ(StatusOf(got), "503");
  EXPECT_THAT(got, AllOf(HasSubstr("Retry-After: 5"), HasSubstr("(--max-num-queued-reqs)")));
  EXPECT_EQ(Metric("vllm:admission_rejections_total{model_name=\"fake\",reason=\"max_num_queued_r"),
            "1");
  const std::string longer =
      Post(port_, "/v1/completions", StrCat(R"({"prompt":")", std::string(60, 'x'), R"("})"));
  EXPECT_THAT(longer, HasSubstr("(--max-num-queued-tokens)"));
  EXPECT_EQ(Metric("vllm:admission_rejections_total{model_name=\"fake\",reason=\"max_num_queued_t"),
            "1");
}

TEST_F(BoundedFrontendTest, AdmitsALongPromptIntoAnEmptyQueue) {
  StartEngine();
  const std::string body = StrCat(R"({"prompt":")", std::string(60, 'x'), R"(","max_tokens":1})");
  EXPECT_EQ(StatusOf(Post(port_, "/v1/completions", body)), "200");
  EXPECT_EQ(StatusOf(Post(port_, "/v1/completions", body)), "200");  // all was given back
}

TEST_F(BoundedFrontendTest, NamesEveryBound) {
  StartEngine();
  const auto said = [&](const char* body) { return Post(port_, "/v1/completions", body); };
  EXPECT_THAT(said(R"({"prompt":"x","logit_bias":{"1":1,"2":1,"3":1}})"),
              HasSubstr("'logit_bias' has 3 entries, want at most 2 (--max-logit-bias)"));
  EXPECT_THAT(said(R"({"prompt":"x","stop":["a","b","c"]})"),
              HasSubstr("'stop' has 3 entries, want at most 2 (--max-stop)"));
  EXPECT_THAT(said(R"({"prompt":"x","stop_token_ids":[1,2,3]})"),
              HasSubstr("'stop_token_ids' has 3 entries, want at most 2 (--max-stop-token-ids)"));
  EXPECT_THAT(said(R"({"prompt":["xxxxx","yy"],"n":50})"),
              HasSubstr("'n' is 50 and the prompts have 7 tokens, 350 together, want at most 200 "
                        "(--max-choice-tokens)"));
  EXPECT_THAT(Post(port_, "/v1/completions",
                   StrCat(R"({"prompt":"x","stop":")", std::string(1025, 's'), R"("})")),
              HasSubstr("'stop' has a string of more than 1024 bytes"));
  // 3 MB of values need more than the budget of 64 MiB; so do the tokens of 1 MB of text.
  std::string zeros = "[0";
  for (int i = 0; i < 1'500'000; ++i) zeros += ",0";
  const std::string values = Post(port_, "/v1/completions", StrCat(R"({"prompt":)", zeros, "]}"));
  EXPECT_EQ(StatusOf(values), "413");
  EXPECT_THAT(values, HasSubstr("(--request-memory)"));
  EXPECT_EQ(StatusOf(Post(port_, "/tokenize",
                          StrCat(R"({"prompt":")", std::string(1'000'000, 'x'), R"("})"))),
            "413");
  EXPECT_EQ(Metric("pinion:request_memory_bytes"), "0");
}

TEST_F(FrontendTest, AnswersWhileAWorkerIsBusy) {
  StartEngine();
  std::promise<void> release;
  pool_->Submit("other", false, [&](WorkerPool::Worker&) { release.get_future().wait(); });
  EXPECT_EQ(StatusOf(Get(port_, "/health")), "200");
  EXPECT_EQ(TextOf(Ask("/v1/completions", R"({"prompt":"x","max_tokens":2})")), "ab");
  release.set_value();
}

// If the event loop rendered it, all of this would be answered only once the template gives up.
TEST_F(FrontendTest, AnswersWhileATemplateRuns) {
  std::promise<void> end;
  template_ends_ = end.get_future().share();
  StartEngine();
  RawClient chat(port_);
  SendPost(chat, R"({"messages":[{"role":"user","content":"x"}],"max_tokens":2})",
           "chat/completions");
  WaitFor(template_runs_, 1);
  EXPECT_EQ(StatusOf(Get(port_, "/health")), "200");
  EXPECT_EQ(TextOf(Ask("/v1/completions", R"({"prompt":"x","max_tokens":2})")), "ab");
  end.set_value();
  EXPECT_EQ(StatusOf(chat.ReadUntil("usage")), "200");
  EXPECT_FALSE(template_ran_out_);
}

TEST_F(FrontendTest, WritesLargeAnswersOnAWorker) {
  StartEngine();
  const Json answer =
      Ask("/v1/completions", R"({"prompt":"x","n":300,"max_tokens":20,"logprobs":1})");
  ASSERT_EQ(answer.Find("choices")->array().size(), 300u);
  EXPECT_EQ(TextOf(answer, 299), "abcdefghijklmnopqrst");
}

TEST_F(FrontendTest, SurvivesDamagedRequests) {
  StartEngine();
  const std::string body =
      R"({"model":"fake","prompt":["ab",[97,98]],"n":2,"max_tokens":3,"stop":["x"],"seed":1,)"
      R"("logit_bias":{"5":1.5},"logprobs":1,"stream":false,"messages":[{"role":"u","content":)"
      R"([{"type":"text","text":"hi"}]}],"tools":[{"type":"function"}]})";
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
  EXPECT_THAT(metrics, HasSubstr("vllm:generation_tokens_total{model_name=\"fake\"} 3"));
  EXPECT_THAT(metrics, HasSubstr("vllm:time_to_first_token_seconds_count{model_name=\"fake\"} 1"));
  EXPECT_THAT(metrics, HasSubstr("vllm:inter_token_latency_seconds_count{model_name=\"fake\"} 2"));
  EXPECT_THAT(metrics, HasSubstr("finished_reason=\"length\"} 1"));
  EXPECT_THAT(metrics, HasSubstr("vllm:num_requests_running{model_name=\"fake\"} 0"));
}

}  // namespace
}  // namespace pinion
