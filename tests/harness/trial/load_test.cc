#include "harness/trial/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_engine.h"
#include "harness/trial/workload.h"

namespace pinion::harness {
namespace {

LoadPlan PlanOf(int clients, int requests, int output_len) {
  LoadPlan plan;
  plan.clients = clients;
  plan.requests = requests;
  plan.output_len = output_len;
  plan.prompt = [](int index) { return std::vector<int32_t>{index + 1, 2, 3}; };
  return plan;
}

TEST(RunLoad, EveryRequestYieldsItsTokensInOrder) {
  FakeEngine engine;
  const auto load = RunLoad(engine, PlanOf(2, 5, 4));
  ASSERT_TRUE(load);
  ASSERT_EQ(load->clients.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(load->clients[i].complete);
    const auto first = static_cast<int32_t>(i + 1);
    EXPECT_THAT(load->clients[i].tokens,
                testing::ElementsAre(first + 1, first + 2, first + 3, first + 4));
    EXPECT_EQ(load->clients[i].times.token_ns.size(), 4u);
    EXPECT_DOUBLE_EQ(load->clients[i].queue_s, 0.001);
    EXPECT_DOUBLE_EQ(load->clients[i].prefill_s, 0.002);
  }
  EXPECT_FALSE(load->cut);
}

TEST(RunLoad, AClosedLoopNeverHasMoreRequestsThanClients) {
  FakeEngine engine;
  ASSERT_TRUE(RunLoad(engine, PlanOf(3, 10, 4)));
  EXPECT_EQ(engine.most_live, 3u);
  FakeEngine offline;
  ASSERT_TRUE(RunLoad(offline, PlanOf(10, 10, 4)));
  EXPECT_EQ(offline.most_live, 10u);
}

TEST(RunLoad, StepsThatComputePromptsAreNotDecodeTime) {
  FakeEngine engine;
  const auto load = RunLoad(engine, PlanOf(4, 4, 8));
  ASSERT_TRUE(load);
  EXPECT_EQ(load->steps.prompt_tokens, 12u);
  EXPECT_EQ(load->steps.decode_tokens, 28u);  // the first tokens come with the prompts
  EXPECT_GT(load->steps.decode_tokens_per_s(), 0);
}

TEST(RunLoad, TheDeadlineAbortsWhatStillRuns) {
  FakeEngine engine;
  engine.never_ends = true;
  engine.step_ns = 1'000'000;
  LoadPlan plan = PlanOf(2, 4, 4);
  plan.deadline_ns = NowNs();
  plan.last_deadline_ns = NowNs() + 20'000'000;
  const auto load = RunLoad(engine, plan);
  ASSERT_TRUE(load);
  EXPECT_TRUE(load->cut);
  EXPECT_TRUE(engine.idle());
  EXPECT_TRUE(load->CompleteTraces().empty());
  EXPECT_EQ(load->clients.size(), 2u);
}

TEST(RunLoad, TheDeadlineWaitsForTheFirstRequestToEnd) {
  FakeEngine engine;
  LoadPlan plan = PlanOf(1, 3, 8);
  plan.deadline_ns = NowNs() - 1;
  const auto load = RunLoad(engine, plan);
  ASSERT_TRUE(load);
  EXPECT_EQ(load->CompleteTraces().size(), 1u);
}

TEST(RunLoad, NothingIsSentAfterTheTimeToStopButOneRequestAlways) {
  FakeEngine engine;
  LoadPlan plan = PlanOf(1, 10, 4);
  plan.stop_sending_ns = NowNs() - 1;
  const auto load = RunLoad(engine, plan);
  ASSERT_TRUE(load);
  EXPECT_EQ(load->clients.size(), 1u);
  EXPECT_TRUE(load->clients[0].complete);
}

TEST(RunLoad, ARefusedRequestIsAnError) {
  FakeEngine engine;
  LoadPlan plan = PlanOf(1, 1, 4);
  plan.prompt = [](int) { return std::vector<int32_t>(); };
  EXPECT_FALSE(RunLoad(engine, plan));
}

TEST(RandomPrompt, DependsOnSeedStreamAndIndexAlone) {
  const auto prompt = RandomPrompt(1, 2, 3, 50, 1000);
  EXPECT_EQ(prompt, RandomPrompt(1, 2, 3, 50, 1000));
  EXPECT_NE(prompt, RandomPrompt(2, 2, 3, 50, 1000));
  EXPECT_NE(prompt, RandomPrompt(1, 3, 3, 50, 1000));
  EXPECT_NE(prompt, RandomPrompt(1, 2, 4, 50, 1000));
  EXPECT_THAT(prompt, testing::Each(testing::AllOf(testing::Ge(0), testing::Lt(1000))));
}

TEST(HashTokens, TellsOrderAndBoundariesApart) {
  EXPECT_EQ(HashTokens({{1, 2}, {3}}), HashTokens({{1, 2}, {3}}));
  EXPECT_NE(HashTokens({{1, 2}, {3}}), HashTokens({{1}, {2, 3}}));
  EXPECT_NE(HashTokens({{1, 2}, {3}}), HashTokens({{3}, {1, 2}}));
  EXPECT_EQ(HashTokens({}).size(), 16u);
}

}  // namespace
}  // namespace pinion::harness
