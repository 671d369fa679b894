#include "harness/trial/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "fake_clock.h"
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

constexpr int64_t kMs = 1'000'000;

// An engine and a load by one clock, which only the engine's steps move.
class TimedLoad : public ::testing::Test {
 protected:
  TimedLoad() { engine_.clock = &clock_; }

  LoadPlan Timed(LoadPlan plan) const {
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

// Four prompts of three tokens in one step of 7 ms, then seven tokens each in steps of 2 ms.
TEST_F(TimedLoad, SecondsArePrefillsOrDecodesAndAddUpToTheWholeLoad) {
  engine_.step_ns = 2 * kMs;
  engine_.prefill_ns = 5 * kMs;
  const auto load = RunLoad(engine_, Timed(PlanOf(4, 4, 8)));
  ASSERT_TRUE(load);
  EXPECT_EQ(load->steps.prompt_tokens, 12u);
  EXPECT_EQ(load->steps.decode_tokens, 28u);  // the first tokens come with the prompts
  EXPECT_DOUBLE_EQ(load->steps.prefill_s, 0.007);
  EXPECT_DOUBLE_EQ(load->steps.decode_s, 7 * 0.002);
  EXPECT_DOUBLE_EQ(load->steps.prefill_tokens_per_s(), 12 / 0.007);
  EXPECT_DOUBLE_EQ(load->steps.decode_tokens_per_s(), 28 / 0.014);
  EXPECT_EQ(load->end_ns - start_ns_, 21 * kMs);
}

// A prompt of three tokens and three of output: the last of these is never computed.
TEST(RunLoad, CountsOnlyOperationsThatAreComputed) {
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
  LoadPlan plan = Timed(PlanOf(2, 2, 4));
  plan.after_step = [&](const LoadStep& step) {
    seconds.push_back(step.seconds);
    clock_.SleepNs(100 * kMs);
  };
  const auto load = RunLoad(engine_, plan);
  ASSERT_TRUE(load);
  EXPECT_THAT(seconds, testing::Each(testing::DoubleEq(0.002)));
  EXPECT_EQ(seconds.size(), 4u);
  EXPECT_DOUBLE_EQ(load->steps.decode_s, 3 * 0.002);
  EXPECT_EQ(load->end_ns - start_ns_, 8 * kMs);
}

TEST_F(TimedLoad, DeadlineAbortsRunningRequests) {
  engine_.never_ends = true;
  engine_.step_ns = kMs;
  LoadPlan plan = Timed(PlanOf(2, 4, 4));
  plan.deadline_ns = start_ns_;
  plan.last_deadline_ns = start_ns_ + 20 * kMs;
  const auto load = RunLoad(engine_, plan);
  ASSERT_TRUE(load);
  EXPECT_TRUE(load->cut);
  EXPECT_TRUE(engine_.idle());
  EXPECT_TRUE(load->CompleteTraces().empty());
  ASSERT_EQ(load->clients.size(), 2u);
  EXPECT_EQ(load->clients[0].tokens.size(), 20u);
}

TEST_F(TimedLoad, TheDeadlineWaitsForTheFirstRequestToEnd) {
  LoadPlan plan = Timed(PlanOf(1, 3, 8));
  plan.deadline_ns = start_ns_ - 1;
  const auto load = RunLoad(engine_, plan);
  ASSERT_TRUE(load);
  EXPECT_EQ(load->CompleteTraces().size(), 1u);
}

TEST_F(TimedLoad, SendsNothingAfterTheStopTimeExceptAFirstRequest) {
  LoadPlan plan = Timed(PlanOf(1, 10, 4));
  plan.stop_sending_ns = start_ns_ - 1;
  const auto load = RunLoad(engine_, plan);
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

TEST_F(TimedLoad, AnOpenLoopSendsWhenDueAndCountsFromThen) {
  engine_.step_ns = 20 * kMs;
  LoadPlan plan = Timed(PlanOf(1, 3, 2));
  plan.arrival_s = {0, 0.01, 0.15};  // the second one is due while the engine computes
  const auto load = RunLoad(engine_, plan);
  ASSERT_TRUE(load);
  ASSERT_EQ(load->clients.size(), 3u);
  const auto of = [&](size_t i) { return load->clients[i].times; };
  EXPECT_EQ(of(0).sent_ns, start_ns_);
  EXPECT_EQ(of(1).sent_ns, start_ns_ + 10 * kMs);
  EXPECT_EQ(of(2).sent_ns, start_ns_ + 150 * kMs);
  EXPECT_EQ(of(1).token_ns[0], start_ns_ + 40 * kMs) << "of the step after the one it waited for";
  EXPECT_EQ(of(2).token_ns[0], start_ns_ + 170 * kMs);
  EXPECT_THAT(load->late_s, testing::Each(testing::DoubleEq(0)));  // the client was never late
  EXPECT_EQ(engine_.most_live, 2u);                                // whatever `clients` says
  for (const ClientTrace& client : load->clients) EXPECT_TRUE(client.complete);
}

TEST_F(TimedLoad, DoesNotWaitForRequestsDueTooLate) {
  engine_.step_ns = kMs;
  LoadPlan plan = Timed(PlanOf(1, 2, 2));
  plan.arrival_s = {0, 3600};
  plan.stop_sending_ns = start_ns_ + 1000 * kMs;
  const auto load = RunLoad(engine_, plan);
  ASSERT_TRUE(load);
  EXPECT_EQ(load->clients.size(), 1u);
  EXPECT_EQ(load->end_ns, start_ns_ + 2 * kMs);
}

TEST(MakeTokenConversation, DrawsLengthsOfTheNamedWorkload) {
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

TEST(MakeTokenConversation, NoRequestIsLongerThanASequenceMayBe) {
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

TEST(HashTokens, DependsOnOrderAndBoundaries) {
  EXPECT_EQ(HashTokens({{1, 2}, {3}}), HashTokens({{1, 2}, {3}}));
  EXPECT_NE(HashTokens({{1, 2}, {3}}), HashTokens({{1}, {2, 3}}));
  EXPECT_NE(HashTokens({{1, 2}, {3}}), HashTokens({{3}, {1, 2}}));
  EXPECT_EQ(HashTokens({}).size(), 16u);
}

}  // namespace
}  // namespace pinion::harness
