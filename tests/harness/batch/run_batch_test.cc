#include "harness/batch/run_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A server that answers the oldest request when nothing else is left to do; its timers are due at
// once, in their order, between answers.
class FakeClient final : public HttpClient {
 public:
  void Start(HttpCall call) override {
    calls_.push_back(std::move(call));
    most_ = std::max(most_, calls_.size());
  }
  void At(int64_t when_ns, std::function<void()> callback) override {
    timers_.emplace(when_ns, std::move(callback));
  }
  void CutOff() override {
    for (auto cut = std::exchange(calls_, {}); HttpCall & call : cut)
      call.on_end({0, "cut off", 0, ""});
  }
  void CancelTimers() override { timers_.clear(); }
  void Run() override {
    while (!calls_.empty() || !timers_.empty()) {
      if (!timers_.empty()) {
        const auto callback = timers_.extract(timers_.begin()).mapped();
        callback();
      }
      if (calls_.empty()) continue;
      HttpCall call = std::move(calls_.front());
      calls_.pop_front();
      const auto [status, body] = answer(call);
      if (status == 200) call.on_body(body, 0);
      const std::string error = status == 0 ? "gone" : status == 200 ? "" : "refused";
      call.on_end({status, error, 0, status == 200 ? "" : body});
    }
  }

  std::function<std::pair<int, std::string>(const HttpCall&)> answer = [](const HttpCall& call) {
    return std::pair(200, StrCat(R"({"id":"x","echo":)", call.body, "}"));
  };
  size_t most() const { return most_; }

 private:
  std::deque<HttpCall> calls_;
  std::multimap<int64_t, std::function<void()>> timers_;
  size_t most_ = 0;
};

BatchPlan PlanOf(int requests) {
  BatchPlan plan;
  for (int i = 0; i < requests; ++i)
    plan.requests.push_back({StrCat("r", i), "/v1/completions", Json::Object{{"n", i}}});
  plan.at_once = 3;
  return plan;
}

using Outcomes = std::map<std::string, std::pair<int, std::string>>;

Status Answer(FakeClient& client, const BatchPlan& plan, Outcomes& outcomes) {
  return RunBatch(client, plan, [&](const BatchRequest& one, const BatchOutcome& outcome) {
    outcomes[one.custom_id] = {outcome.status,
                               outcome.body.is_null() ? outcome.error : outcome.body.Dump()};
    return Status();
  });
}

TEST(RunBatch, AnswersAllWithSoManyAtOnce) {
  FakeClient client;
  Outcomes outcomes;
  ASSERT_TRUE(Answer(client, PlanOf(7), outcomes));
  ASSERT_EQ(outcomes.size(), 7u);
  for (int i = 0; i < 7; ++i)
    EXPECT_EQ(outcomes[StrCat("r", i)],
              std::pair(200, StrCat(R"({"id":"x","echo":{"n":)", i, "}}")));
  EXPECT_EQ(client.most(), 3u);
}

TEST(RunBatch, ARefusalIsAnOutcome) {
  FakeClient client;
  client.answer = [](const HttpCall& call) {
    if (call.body.find('1') != std::string::npos) return std::pair(400, std::string(R"({"e":1})"));
    if (call.body.find('2') != std::string::npos) return std::pair(0, std::string());
    return std::pair(200, std::string(call.body.find('3') != std::string::npos ? "{" : "{}"));
  };
  Outcomes outcomes;
  ASSERT_TRUE(Answer(client, PlanOf(4), outcomes));
  EXPECT_EQ(outcomes["r0"], std::pair(200, std::string("{}")));
  EXPECT_EQ(outcomes["r1"], std::pair(400, std::string(R"({"e":1})")));
  EXPECT_EQ(outcomes["r2"], std::pair(0, std::string("gone")));
  EXPECT_EQ(outcomes["r3"], std::pair(0, std::string("the answer is no JSON")));
}

TEST(RunBatch, AFullServerIsAskedAgain) {
  FakeClient client;
  std::map<std::string, int> asked;
  client.answer = [&](const HttpCall& call) {
    const bool is_full = ++asked[call.body] < 3;
    return std::pair(is_full ? 503 : 200, std::string(R"({"a":1})"));
  };
  Outcomes outcomes;
  ASSERT_TRUE(Answer(client, PlanOf(2), outcomes));
  EXPECT_EQ(outcomes["r0"].first, 200);
  EXPECT_EQ(outcomes["r1"].first, 200);
  client.answer = [](const HttpCall&) { return std::pair(503, std::string(R"({"a":2})")); };
  BatchPlan plan = PlanOf(1);
  plan.timeout_s = 0;
  ASSERT_TRUE(Answer(client, plan, outcomes));
  EXPECT_EQ(outcomes["r0"], std::pair(503, std::string(R"({"a":2})"))) << "its time is over";
}

TEST(RunBatch, EndsWithTheServerOrWhenAskedTo) {
  for (const bool interrupted : {true, false}) {
    FakeClient client;
    int answered = 0;
    BatchPlan plan = PlanOf(50);
    plan.interrupted = [&] { return interrupted && answered == 5; };
    plan.why_ended = [&] { return std::string(answered == 5 ? "the server ended" : ""); };
    const Status ran = RunBatch(client, plan, [&](const BatchRequest&, const BatchOutcome&) {
      ++answered;
      return Status();
    });
    ASSERT_FALSE(ran);
    EXPECT_EQ(ran.error().message, interrupted ? "interrupted" : "the server ended");
    EXPECT_EQ(answered, 5) << "what was cut off is no outcome";
  }
}

TEST(RunBatch, AnOutcomeThatCannotBeWrittenEndsIt) {
  FakeClient client;
  int written = 0;
  const Status ran = RunBatch(client, PlanOf(9), [&](const BatchRequest&, const BatchOutcome&) {
    return ++written < 4 ? Status() : Status(Fail(ErrorCode::kIo, "no space is left"));
  });
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().message, "no space is left");
  EXPECT_EQ(written, 4);
}

TEST(RunBatch, NothingToDoIsDone) {
  FakeClient client;
  Outcomes outcomes;
  EXPECT_TRUE(Answer(client, PlanOf(0), outcomes));
}

}  // namespace
}  // namespace pinion::harness
