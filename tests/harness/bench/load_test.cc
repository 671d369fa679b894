#include "harness/bench/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../fake_clock.h"
#include "fake_engine.h"
#include "harness/bench/prompts.h"

namespace pinion::harness {
namespace {

EngineLoad PlanOf(int clients, int requests, int output_len) {
  EngineLoad plan;
  plan.clients = clients;
  plan.requests = requests;
  plan.output_len = output_len;
  plan.prompt = [](int index) { return std::vector<int32_t>{index + 1, 2, 3}; };
  return plan;
}

constexpr int64_t kMs = 1'000'000;

// An engine and a load by one clock, which only the engine's steps move.
class TimedLoad : public ::testing::Test {
 protected:
  TimedLoad() { engine_.clock = &clock_; }

  EngineLoad Timed(EngineLoad plan) const {
    plan.clock = &clock_;
    return plan;
  }

  FakeClock clock_;
  FakeEngine engine_;
  const int64_t start_ns_ = clock_.NowNs();
};

TEST(RunLoad, EveryRequestYieldsItsTokensInOrder) {
  FakeEngine engine;
  const auto load = RunLoad(engine, PlanOf(2, 5, 4));
  ASSERT_TRUE(load);
  ASSERT_EQ(load->clients.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    const auto first = static_cast<int32_t>(i + 1);
    EXPECT_THAT(load->clients[i].tokens,
                testing::ElementsAre(first + 1, first + 2, first + 3, first + 4));
    EXPECT_EQ(load->clients[i].times.token_ns.size(), 4u);
    EXPECT_DOUBLE_EQ(load->clients[i].queue_s, 0.001);
    EXPECT_DOUBLE_EQ(load->clients[i].prefill_s, 0.002);
  }
}

TEST(RunLoad, AClosedLoopNeverHasMoreRequestsThanClients) {
  FakeEngine engine;
  ASSERT_TRUE(RunLoad(engine, PlanOf(3, 10, 4)));
  EXPECT_EQ(engine.most_live, 3u);
  FakeEngine offline;
  ASSERT_TRUE(RunLoad(offline, PlanOf(10, 10, 4)));
  EXPECT_EQ(offline.most_live, 10u);
}

// Four prompts of three tokens in one step of 7 ms, then seven tokens each in steps of 2 ms.
TEST_F(TimedLoad, SecondsArePrefillsOrDecodesAndAddUpToTheWholeLoad) {
  engine_.step_ns = 2 * kMs;
  engine_.prefill_ns = 5 * kMs;
  const auto load = RunLoad(engine_, Timed(PlanOf(4, 4, 8)));
  ASSERT_TRUE(load);
  EXPECT_EQ(load->prefill.tokens, 12u);
  EXPECT_EQ(load->decode.tokens, 28u);  // the first tokens come with the prompts
  EXPECT_DOUBLE_EQ(load->prefill.seconds, 0.007);
  EXPECT_DOUBLE_EQ(load->decode.seconds, 7 * 0.002);
  EXPECT_EQ(load->end_ns - start_ns_, 21 * kMs);
}

TEST_F(TimedLoad, ATokenComesWhenItsStepEnds) {
  engine_.step_ns = 2 * kMs;
  engine_.prefill_ns = 5 * kMs;
  const auto load = RunLoad(engine_, Timed(PlanOf(1, 2, 3)));  // one after the other
  ASSERT_TRUE(load);
  ASSERT_EQ(load->clients.size(), 2u);
  for (int64_t i = 0; i < 2; ++i) {
    const RequestTrace& times = load->clients[static_cast<size_t>(i)].times;
    const int64_t sent_ns = start_ns_ + i * 11 * kMs;
    EXPECT_EQ(times.sent_ns, sent_ns);
    EXPECT_THAT(times.token_ns,
                testing::ElementsAre(sent_ns + 7 * kMs, sent_ns + 9 * kMs, sent_ns + 11 * kMs));
  }
}

TEST_F(TimedLoad, TheClockStandsStillBetweenSteps) {
  engine_.step_ns = 2 * kMs;
  std::vector<double> seconds;
  EngineLoad plan = Timed(PlanOf(2, 2, 4));
  plan.after_step = [&](const LoadStep& step) {
    seconds.push_back(step.seconds);
    clock_.SleepNs(100 * kMs);
  };
  const auto load = RunLoad(engine_, plan);
  ASSERT_TRUE(load);
  EXPECT_THAT(seconds, testing::Each(testing::DoubleEq(0.002)));
  EXPECT_EQ(seconds.size(), 4u);
  EXPECT_DOUBLE_EQ(load->decode.seconds, 3 * 0.002);
  EXPECT_EQ(load->end_ns - start_ns_, 8 * kMs);
}

TEST(RunLoad, ARefusedRequestIsAnError) {
  FakeEngine engine;
  EngineLoad plan = PlanOf(1, 1, 4);
  plan.prompt = [](int) { return std::vector<int32_t>(); };
  EXPECT_FALSE(RunLoad(engine, plan));
}

TEST(RunLoad, ARequestThatTheEngineGivesUpIsAnError) {
  FakeEngine engine;
  engine.gives_up = "the logits are not finite";
  const auto load = RunLoad(engine, PlanOf(1, 2, 4));
  ASSERT_FALSE(load);
  EXPECT_EQ(load.error().message, "the logits are not finite");
}

TEST(RandomPrompt, DependsOnSeedStreamAndIndexAlone) {
  const auto prompt = RandomPrompt(1, 2, 3, 50, 1000);
  EXPECT_EQ(prompt, RandomPrompt(1, 2, 3, 50, 1000));
  EXPECT_NE(prompt, RandomPrompt(2, 2, 3, 50, 1000));
  EXPECT_NE(prompt, RandomPrompt(1, 3, 3, 50, 1000));
  EXPECT_NE(prompt, RandomPrompt(1, 2, 4, 50, 1000));
  EXPECT_THAT(prompt, testing::Each(testing::AllOf(testing::Ge(0), testing::Lt(1000))));
}

}  // namespace
}  // namespace pinion::harness
