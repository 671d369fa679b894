#include "engine/serve/stand_in.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "tests/test_data.h"

namespace pinion {
namespace {

// Stands still unless an engine sleeps by it, and then wakes it too early.
class SleepClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns; }
  void SleepNs(int64_t ns) const override { now_ns += (ns + 1) / 2; }
  mutable int64_t now_ns = 1'000'000'000;
};

class StandInTest : public testing::Test {
 protected:
  StandInTest() {
    EngineOptions options;
    options.model = tests::TestData() + "/models/tiny-trained";
    options.max_model_len = 12;
    engine_ = *StartStandIn(options, 20, clock_);
  }

  Status Add(uint64_t id, std::vector<int32_t> prompt, int max_tokens) {
    Request request{id, std::move(prompt), {}};
    request.params.max_tokens = max_tokens;
    return engine_->Add(std::move(request));
  }

  std::vector<TokenEvent> Step() {
    std::vector<TokenEvent> events;
    engine_->Step(events);
    return events;
  }

  SleepClock clock_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(StandInTest, GivesEachRequestATokenAStep) {
  ASSERT_TRUE(Add(1, {7, 8}, 3) && Add(2, {9}, 2));
  const int64_t start_ns = clock_.now_ns;
  std::map<uint64_t, std::vector<int32_t>> tokens;
  std::map<uint64_t, FinishReason> ends;
  for (int step = 1; !engine_->idle(); ++step) {
    ASSERT_LE(step, 3);
    for (const TokenEvent& event : Step()) {
      tokens[event.request].push_back(event.token.id);
      ends[event.request] = event.finish;
      EXPECT_EQ(event.output_tokens, tokens[event.request].size());
    }
    EXPECT_EQ(clock_.now_ns - start_ns, (step - 1) * 50'000'000);  // the first at once
  }
  EXPECT_EQ(tokens[1], (std::vector<int32_t>{7, 8, 7}));
  EXPECT_EQ(tokens[2], (std::vector<int32_t>{9, 9}));
  EXPECT_EQ(ends[1], FinishReason::kLength);
  EXPECT_EQ(ends[2], FinishReason::kLength);
  EXPECT_EQ(engine_->stats().output_tokens, 5u);
  EXPECT_EQ(engine_->stats().steps, 3u);
}

TEST_F(StandInTest, ALateStepIsNotMadeUpFor) {
  ASSERT_TRUE(Add(1, {7}, 9));
  Step();
  clock_.now_ns += 1'000'000'000;
  const int64_t late_ns = clock_.now_ns;
  Step();
  EXPECT_EQ(clock_.now_ns, late_ns);
  Step();
  EXPECT_EQ(clock_.now_ns, late_ns + 50'000'000);
}

TEST_F(StandInTest, EndsAbortedRequests) {
  ASSERT_TRUE(Add(1, {7}, 9));
  Step();
  engine_->Abort(1);
  engine_->Abort(1);
  engine_->Abort(5);  // unknown
  EXPECT_FALSE(engine_->idle());
  const auto events = Step();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].finish, FinishReason::kAborted);
  EXPECT_FALSE(events[0].has_token);
  EXPECT_EQ(events[0].output_tokens, 1u);
  EXPECT_TRUE(engine_->idle());
}

TEST_F(StandInTest, KeepsToTheModelsLength) {
  EXPECT_FALSE(Add(1, {}, 1));
  EXPECT_FALSE(Add(1, std::vector<int32_t>(12, 7), 1));
  ASSERT_TRUE(Add(1, std::vector<int32_t>(10, 7), 9));
  EXPECT_EQ(Step().at(0).finish, FinishReason::kNone);
  EXPECT_EQ(Step().at(0).finish, FinishReason::kLength);
}

}  // namespace
}  // namespace pinion
