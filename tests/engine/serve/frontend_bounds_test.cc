// What a request may take, and what goes on beside it.

#include <gmock/gmock.h>

#include "tests/engine/serve/frontend_fixture.h"

namespace pinion {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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

}  // namespace
}  // namespace pinion
