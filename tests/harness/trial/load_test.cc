#include "harness/trial/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "fake_engine.h"
#include "harness/trial/workload.h"

namespace pinion::harness {
namespace {

LoadPlan PlanOf(int clients, int requests, int output_len) {
  LoadPlan plan;
  plan.clients = clients;
  plan.requests = requests;
  plan.conversation = [output_len](int index) {
    return TokenConversation{{{index + 1, 2, 3}, output_len}};
  };
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

TEST(LateClient, IsOneThatSendsLateAgainstTheFirstToken) {
  constexpr int64_t kMs = 1'000'000;
  LoadResult load;
  load.clients.resize(20);
  for (ClientTrace& client : load.clients) {
    client.times = {0, {200 * kMs, 210 * kMs}};
    client.complete = true;
  }
  load.late_s.assign(20, 0.0019);  // below 1 % of 200 ms
  EXPECT_EQ(LateClient(load), "");
  load.late_s.assign(20, 0.0030);
  EXPECT_EQ(LateClient(load), "late client: 3.0 ms behind schedule at p95");
  for (ClientTrace& client : load.clients) client.times = {0, {kMs, 2 * kMs}};
  load.late_s.assign(20, 0.0009);  // of 1 ms much, but nothing that a clock could hold against it
  EXPECT_EQ(LateClient(load), "");
}

TEST(RunLoad, StepsThatComputePromptsAreNotDecodeTime) {
  FakeEngine engine;
  const auto load = RunLoad(engine, PlanOf(4, 4, 8));
  ASSERT_TRUE(load);
  EXPECT_EQ(load->steps.prompt_tokens, 12u);
  EXPECT_EQ(load->steps.decode_tokens, 28u);  // the first tokens come with the prompts
  EXPECT_GT(load->steps.decode_tokens_per_s(), 0);
}

// A prompt of three tokens and three of output: the last of these is never computed.
TEST(RunLoad, CountsOperationsOfWhatIsComputedAlone) {
  FakeEngine engine;
  const CostModel cost(engine.model().spec, kernels::Dtype::kF32, engine.info().kv_dtype, 1);
  StepCost decode = cost.Rows(3, 1, 1);
  decode += cost.Rows(4, 1, 1);
  for (const size_t cached : {0, 2}) {
    engine.cached_tokens = cached;
    const auto load = RunLoad(engine, PlanOf(1, 1, 3));
    ASSERT_TRUE(load);
    EXPECT_EQ(load->steps.prefill_cost.flops, cost.Rows(cached, 3 - cached, 1).flops) << cached;
    EXPECT_EQ(load->steps.decode_cost.flops, decode.flops) << cached;
    EXPECT_EQ(load->steps.decode_cost.kv_bytes, decode.kv_bytes) << cached;
  }
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
  plan.conversation = [](int) { return TokenConversation{{{}, 4}}; };
  EXPECT_FALSE(RunLoad(engine, plan));
}

TEST(RunLoad, ATurnHasEverythingBeforeItAnswersIncluded) {
  FakeEngine engine;
  LoadPlan plan = PlanOf(1, 2, 0);
  plan.conversation = [](int index) {
    return TokenConversation{{{10 * index + 1}, 2}, {{7, 8}, 3}};
  };
  const auto load = RunLoad(engine, plan);
  ASSERT_TRUE(load);
  ASSERT_EQ(load->clients.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(load->clients[i].conversation, i / 2);
    EXPECT_EQ(load->clients[i].turn, i % 2);
  }
  std::vector<int32_t> second = {1};
  const std::vector<int32_t>& answer = load->clients[0].tokens;
  second.insert(second.end(), answer.begin(), answer.end());
  second.insert(second.end(), {7, 8});
  EXPECT_EQ(engine.prompts[1], second);
  EXPECT_EQ(load->clients[1].tokens.size(), 3u);
}

TEST(RunLoad, AnOpenLoopSendsWhenDueAndCountsFromThen) {
  FakeEngine engine;
  engine.step_ns = 20'000'000;
  LoadPlan plan = PlanOf(1, 3, 2);
  plan.arrival_s = {0, 0.01, 0.15};  // the second one is due while the engine computes
  const auto load = RunLoad(engine, plan);
  ASSERT_TRUE(load);
  ASSERT_EQ(load->clients.size(), 3u);
  const int64_t start_ns = load->clients[0].times.sent_ns;
  EXPECT_EQ(load->clients[1].times.sent_ns - start_ns, 10'000'000);
  EXPECT_EQ(load->clients[2].times.sent_ns - start_ns, 150'000'000);
  EXPECT_EQ(engine.most_live, 2u);  // whatever `clients` says
  for (const ClientTrace& client : load->clients) {
    EXPECT_TRUE(client.complete);
    EXPECT_GE(client.times.token_ns[0] - client.times.sent_ns, 20'000'000);
  }
}

TEST(RunLoad, WhatIsDueTooLateIsNotWaitedFor) {
  FakeEngine engine;
  LoadPlan plan = PlanOf(1, 2, 2);
  plan.arrival_s = {0, 3600};
  plan.stop_sending_ns = NowNs() + 1'000'000'000;
  const auto load = RunLoad(engine, plan);
  ASSERT_TRUE(load);
  EXPECT_EQ(load->clients.size(), 1u);
}

TEST(MakeTokenConversation, DrawsWhatTheWorkloadNames) {
  Workload workload;
  workload.name = "chat";
  workload.prompt_len = 100;
  workload.output_len = 20;
  workload.shared_prefix = 50;
  workload.prefixes = 2;
  workload.turns = 3;
  const WorkloadShape shape = ShapeOf(workload);
  std::set<std::vector<int32_t>> prefixes;
  std::set<size_t> lengths;
  for (uint64_t index = 0; index < 40; ++index) {
    const TokenConversation one = MakeTokenConversation(shape, 1, 2, index, 1000, 100'000);
    ASSERT_EQ(one.size(), 3u);
    prefixes.insert({one[0].tokens.begin(), one[0].tokens.begin() + 50});
    lengths.insert(one[1].tokens.size());
    EXPECT_EQ(one[2].tokens, MakeTokenConversation(shape, 1, 2, index, 1000, 100'000)[2].tokens);
  }
  EXPECT_EQ(prefixes.size(), 2u);
  EXPECT_GT(lengths.size(), 20u);  // lognormal
}

TEST(MakeTokenConversation, FixedLengthsAreRandomPrompts) {
  Workload workload;
  workload.prompt_len = 30;
  workload.output_len = 5;
  const TokenConversation one = MakeTokenConversation(ShapeOf(workload), 1, 2, 3, 1000, 4096);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].tokens, RandomPrompt(1, 2, 3, 30, 1000));
  EXPECT_EQ(one[0].output_len, 5);
}

TEST(MakeTokenConversation, NothingIsLongerThanASequenceMayBe) {
  Workload workload;
  workload.name = "rag";
  workload.prompt_len = 40;
  workload.output_len = 30;
  workload.shared_prefix = 500;
  workload.turns = 9;
  for (uint64_t index = 0; index < 20; ++index) {
    const auto conversation = MakeTokenConversation(ShapeOf(workload), 1, 2, index, 1000, 200);
    size_t tokens = 0;
    for (const TokenTurn& turn : conversation) {
      EXPECT_FALSE(turn.tokens.empty());
      EXPECT_GE(turn.output_len, 1);
      tokens += turn.tokens.size() + static_cast<size_t>(turn.output_len);
    }
    EXPECT_LE(tokens, 200u);
    EXPECT_FALSE(conversation.empty());
  }
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
