// Limits of a request, and other requests beside it.

#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <utility>

#include "tests/engine/serve/frontend_fixture.h"

namespace pinion {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class BoundedFrontendTest : public FrontendTest {
 protected:
  BoundedFrontendTest() {
    limits_.max_num_queued_reqs = 5;
    limits_.max_num_queued_tokens = 50;
    limits_.max_choice_tokens = 200;
    limits_.max_logit_bias = 2;
    limits_.max_stop = 2;
    limits_.max_stop_token_ids = 2;
    limits_.max_allowed_token_ids = 2;
    limits_.max_bad_words = 2;
    limits_.max_logprobs = 3;
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
  EXPECT_THAT(said(R"({"prompt":"x","allowed_token_ids":[1,2,3]})"),
              HasSubstr("'allowed_token_ids' has 3 entries, want at most 2 (--max-allowed-t"));
  EXPECT_THAT(said(R"({"prompt":"x","bad_words":["a","b","c"]})"),
              HasSubstr("'bad_words' has 3 entries, want at most 2 (--max-bad-words)"));
  EXPECT_THAT(
      said(StrCat(R"({"prompt":"x","bad_words":[")", std::string(1025, 'b'), "\"]}").c_str()),
      HasSubstr("'bad_words' has a string of more than 1024 bytes"));
  EXPECT_THAT(said(R"({"prompt":"x","logprobs":4})"),
              HasSubstr("'logprobs' is 4, want at most 3 (--max-logprobs)"));
  EXPECT_THAT(said(R"({"prompt":"x","prompt_logprobs":4})"),
              HasSubstr("'prompt_logprobs' is 4, want at most 3 (--max-logprobs)"));
  EXPECT_THAT(Post(port_, "/v1/chat/completions",
                   R"({"messages":[{"role":"user","content":"x"}],"logprobs":true,)"
                   R"("top_logprobs":4})"),
              HasSubstr("'top_logprobs' is 4, want at most 3 (--max-logprobs)"));
  EXPECT_EQ(StatusOf(said(R"({"prompt":"x","max_tokens":1,"logprobs":3})")), "200");
  EXPECT_THAT(said(R"({"prompt":["xxxxx","yy"],"n":50})"),
              HasSubstr("'n' is 50 and the prompts have 7 tokens, 350 together, want at most 200 "
                        "(--max-choice-tokens)"));
  const std::string fifty = StrCat("\"", std::string(50, 'x'), "\"");
  EXPECT_THAT(
      said(StrCat(R"({"prompt":[)", Join(std::vector<std::string>(5, fifty), ","), "]}").c_str()),
      HasSubstr("the request has 250 tokens of text, want at most 200 "
                "(--max-choice-tokens); send several"));
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

class UnboundedLogprobsTest : public FrontendTest {
 protected:
  UnboundedLogprobsTest() { limits_.max_logprobs = -1; }
};

// A count of 2^31 - 1 is the vocabulary's size: memory is reserved for 257 alternatives a token.
TEST_F(UnboundedLogprobsTest, AllAlternativesAreThoseOfTheVocabulary) {
  StartEngine();
  for (const char* field : {"logprobs", "prompt_logprobs"})
    EXPECT_EQ(StatusOf(Post(port_, "/v1/completions",
                            StrCat(R"({"prompt":"x","max_tokens":1,")", field, "\":2147483647}"))),
              "200")
        << field;
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

// Occupies all workers of the fixture's pool until they are let go. The jobs own their state: one
// may still be about to return when this is gone.
class BusyWorkers {
 public:
  void Occupy(WorkerPool& pool) {
    for (const char* client : {"x", "y", "z"})
      pool.Submit(client, false, [signals = signals_](WorkerPool::Worker&) {
        ++signals->running;
        signals->free.wait();
      });
    Await([this] { return signals_->running == 3; });
  }
  void LetGo() { signals_->end.set_value(); }

 private:
  struct Signals {
    std::promise<void> end;
    std::shared_future<void> free = end.get_future().share();
    std::atomic<int> running = 0;
  };
  std::shared_ptr<Signals> signals_ = std::make_shared<Signals>();
};

class DeadlineTest : public FrontendTest {
 protected:
  DeadlineTest() { limits_.request_timeout_s = 0.3; }
};

TEST_F(DeadlineTest, EndsRequestsThatWaitForAWorker) {
  StartEngine();
  BusyWorkers busy;
  busy.Occupy(*pool_);
  for (const char* path : {"/tokenize", "/detokenize", "/v1/completions"}) {
    const std::string got = Post(port_, path, R"({"prompt":"x","tokens":[1]})");
    EXPECT_EQ(StatusOf(got), "504") << path;
    EXPECT_THAT(got, HasSubstr("within 0.3 s (--request-timeout)"));
  }
  EXPECT_EQ(Metric("pinion:deadline_exceeded_total"), "3");
  busy.LetGo();
}

TEST_F(FrontendTest, EndsARequestAtItsTimeoutWhileItsTemplateRuns) {
  std::promise<void> end;
  template_ends_ = end.get_future().share();
  StartEngine();
  const std::string got =
      Post(port_, "/v1/chat/completions",
           R"({"messages":[{"role":"user","content":"x"}],"max_tokens":2,"timeout":0.2})");
  EXPECT_EQ(StatusOf(got), "504");
  EXPECT_THAT(got, HasSubstr("within 0.2 s (timeout)"));
  end.set_value();
  EXPECT_FALSE(template_ran_out_);
}

// Asks for an answer that is large without log-probabilities, and has all workers busy before its
// first token. FakeEngine's thread calls on_add.
class LargeAnswerTest : public FrontendTest {
 protected:
  void AskWhileWorkersAreBusy(RawClient& client, const char* more = "") {
    engine_.on_add = [this, first = true](const Request&) mutable {
      if (std::exchange(first, false)) busy_.Occupy(*pool_);
    };
    StartEngine();
    SendPost(client, StrCat(R"({"prompt":"x","n":1000,"max_tokens":2)", more, "}"));
  }
  BusyWorkers busy_;
};

TEST_F(LargeAnswerTest, IsWrittenOnAWorker) {
  RawClient client(port_);
  AskWhileWorkersAreBusy(client);
  EXPECT_TRUE(Await([&] { return Metric("pinion:pool_queued") == "1"; }));
  EXPECT_EQ(Metric("vllm:num_requests_running"), "0");
  busy_.LetGo();
  const Json answer = *Json::Parse(BodyOf(client.ReadUntil("\"cached_tokens\":0}}}")));
  ASSERT_EQ(answer.Find("choices")->array().size(), 1000u);
  EXPECT_EQ(TextOf(answer, 999), "ab");
}

TEST_F(LargeAnswerTest, EndsAtItsDeadlineAsWell) {
  RawClient client(port_);
  AskWhileWorkersAreBusy(client, R"(,"timeout":1)");
  EXPECT_EQ(StatusOf(client.ReadUntil("(timeout)")), "504");
  busy_.LetGo();
  EXPECT_EQ(TextOf(Ask("/v1/completions", R"({"prompt":"x","max_tokens":2})")), "ab");
}

class ScarceMemoryTest : public FrontendTest {
 protected:
  ScarceMemoryTest() { memory_bytes_ = 1 << 20; }
};

TEST_F(ScarceMemoryTest, CountsBodiesThatFindNone) {
  StartEngine();
  RawClient half(port_);
  half.Send("POST /tokenize HTTP/1.1\r\nContent-Length: 420000\r\n\r\n" +
            std::string(400'000, 'x'));
  Await([&] { return std::stol(Metric("pinion:request_memory_bytes")) >= 400'000; });
  const std::string got = Post(port_, "/tokenize", std::string(200'000, 'x'));
  EXPECT_EQ(StatusOf(got), "503");
  EXPECT_THAT(got, AllOf(HasSubstr("Retry-After: 5"), HasSubstr("(--request-memory)")));
  EXPECT_EQ(Metric("vllm:admission_rejections_total{model_name=\"fake\",reason=\"request_memory"),
            "1");
}

class TinyMemoryTest : public FrontendTest {
 protected:
  TinyMemoryTest() { memory_bytes_ = 128 << 10; }
};

// At its end a stream of Responses says all of its log-probabilities once more.
TEST_F(TinyMemoryTest, CountsTheLogProbabilitiesThatAStreamKeeps) {
  StartEngine();
  const auto ask = [&](const char* path, const char* more) {
    return Post(port_, path, StrCat(R"({"input":"x","stream":true)", more, "}"));
  };
  EXPECT_THAT(ask("/v1/responses", ""), HasSubstr("response.completed"));
  EXPECT_THAT(ask("/v1/responses", R"(,"max_output_tokens":4,"top_logprobs":2)"),
              HasSubstr("response.incomplete"));
  EXPECT_THAT(ask("/v1/responses", R"(,"top_logprobs":2)"),
              AllOf(HasSubstr("response.failed"), HasSubstr("one more token"),
                    HasSubstr("(--request-memory)")));
  EXPECT_THAT(Post(port_, "/v1/completions",
                   R"({"prompt":"x","max_tokens":30,"stream":true,)"
                   R"("logprobs":2})"),
              HasSubstr("[DONE]"));
  Await([&] { return Metric("pinion:request_memory_bytes") == "0"; });
  EXPECT_EQ(Metric("pinion:request_memory_bytes"), "0");
}

class AllEndpointsTest : public FrontendTest {
 protected:
  AllEndpointsTest() {
    faults_.enable_sleep_mode = faults_.enable_cache_reset = true;
    faults_.profile_dir = "/tmp";
  }
};

TEST_F(AllEndpointsTest, AreNamedWhenAPathIsWrong) {
  EXPECT_THAT(
      Get(port_, "/nowhere"),
      HasSubstr(
          "this server answers /apply-template, /completion, /completions, /detokenize, "
          "/health, /infill, /invocations, /is_sleeping, /load, /metrics, /models, /openapi.json, "
          "/ping, /props, "
          "/reset_prefix_cache, /server_info, /sleep, /slots, /start_profile, "
          "/stop_profile, /tokenize, /tokenizer_info, /v1/chat/completions, "
          "/v1/completions, /v1/health, /v1/messages, /v1/messages/count_tokens, /v1/models, "
          "/v1/models/{model}, /v1/responses, /version, /wake_up"));
}

TEST_F(FrontendTest, NamesNoEndpointThatItDoesNotOffer) {
  EXPECT_THAT(Get(port_, "/nowhere"),
              testing::Not(testing::AnyOf(HasSubstr("/sleep"), HasSubstr("/v1/embeddings"))));
}

}  // namespace
}  // namespace pinion
