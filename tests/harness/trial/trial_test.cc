#include "harness/trial/trial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>

#include "fake_target.h"
#include "harness/trial/trial_deadline.h"

namespace pinion::harness {
namespace {

using testing::HasSubstr;

TEST(Trial, MeasuresTheBatchAndEveryConcurrency) {
  FakeTarget target;
  const auto result = Measured(target, SmallRequest());
  ASSERT_TRUE(result) << result.error().message;
  // Six answers of four tokens at once, the last token after 2 + 3 x 1 ms.
  EXPECT_DOUBLE_EQ(Find(*result, "output_tokens_per_s", 0)->value, 24 / 0.005);
  for (const int clients : {1, 3}) {
    EXPECT_DOUBLE_EQ(Find(*result, "ttft_s", clients)->value, 0.002);
    EXPECT_DOUBLE_EQ(Find(*result, "tpot_s", clients)->value, 0.001);
    EXPECT_DOUBLE_EQ(Find(*result, "itl_s", clients)->value, 0.001);
    EXPECT_DOUBLE_EQ(Find(*result, "e2el_s", clients)->value, 0.005);
    EXPECT_DOUBLE_EQ(Find(*result, "output_tokens_per_s", clients)->value,
                     24 / (6.0 / clients * 0.005));
  }
  EXPECT_FALSE(Find(*result, "ttft_p90_s", 1));  // 6 requests do not support it
  EXPECT_TRUE(result->info.cut.empty());
}

TEST(Trial, ReportsTheCountsOfTheServers) {
  FakeTarget target;
  target.counted = ServerCounters{2, 100, 25, {0.5, 50, 1000, 300}, {0.25, 20, 2000, 60}};
  target.kv_used_share = 0.75;
  const auto result = Measured(target, SmallRequest());
  ASSERT_TRUE(result) << result.error().message;
  for (const int clients : {0, 1, 3}) {
    EXPECT_EQ(Find(*result, "preemptions", clients)->value, 2);
    EXPECT_EQ(Find(*result, "prefix_hit_share", clients)->value, 0.25);
    EXPECT_EQ(Find(*result, "kv_used_share", clients)->value, 0.75);
  }
  EXPECT_EQ(Find(*result, "prefill_tokens_per_s", 0)->value, 100);
  EXPECT_EQ(Find(*result, "prefill_bytes_per_s", 0)->value, 2000);
  EXPECT_EQ(Find(*result, "prefill_flops_per_s", 0)->value, 600);
  EXPECT_EQ(Find(*result, "decode_tokens_per_s", 0)->value, 80);
  EXPECT_EQ(Find(*result, "decode_bytes_per_s", 0)->value, 8000);
  EXPECT_EQ(Find(*result, "decode_flops_per_s", 0)->value, 240);
  EXPECT_FALSE(Find(*result, "decode_tokens_per_s", 1));
}

TEST(Trial, CountersThatAreAbsentLeaveNoSamples) {
  FakeTarget target;
  const auto result = Measured(target, SmallRequest());
  ASSERT_TRUE(result);
  for (const char* metric : {"preemptions", "prefix_hit_share", "kv_used_share",
                             "prefill_tokens_per_s", "decode_bytes_per_s"})
    EXPECT_FALSE(Find(*result, metric, 0)) << metric;
}

TEST(Trial, KeepsEveryRequestButThoseOfWarmUps) {
  FakeTarget target;
  TrialRequest request = SmallRequest();
  request.workload.slo = FirstWithin(1);
  request.workload.rates = {50};
  const auto result = Measured(target, request);
  ASSERT_TRUE(result) << result.error().message;
  std::map<std::pair<std::string, LoadLevel>, int> count;
  for (const RequestRow& row : result->requests) {
    ++count[{row.load, row.load == "search" ? LoadLevel() : row.level}];
    EXPECT_EQ(row.level.is_open(), row.load == "search" || row.load == "rate");
    EXPECT_EQ(row.record.token_ns.size(), 4u);
  }
  EXPECT_EQ((count[{"batch", 0}]), 6);
  EXPECT_EQ((count[{"clients", 1}]), 6);
  EXPECT_EQ((count[{"clients", 3}]), 12) << "four turns of every client";
  EXPECT_GE((count[{"search", 0}]), 6);
  EXPECT_EQ((count[{"rate", LoadLevel::AtRate(50)}]), 20) << "for a steady window";
  EXPECT_EQ(count.size(), 5u);
}

// Requests of 0.1 s, one after the other: five a second hardly wait, and of twenty a second the
// k-th waits for all before it.
TEST(Trial, MeasuresEveryRequestRate) {
  FakeTarget target;
  target.serves_s = 0.1;
  TrialRequest request = SmallRequest();
  request.workload.concurrency = {};
  request.workload.rates = {5, 20};
  request.limit_s = 100;
  const auto result = Measured(target, request);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_DOUBLE_EQ(Find(*result, "e2el_s", LoadLevel::AtRate(5))->value, 0.1);
  EXPECT_GT(Find(*result, "e2el_s", LoadLevel::AtRate(20))->value, 0.5);
  EXPECT_NEAR(Find(*result, "output_tokens_per_s", LoadLevel::AtRate(5))->value, 20, 2);
  EXPECT_FALSE(Find(*result, "e2el_s", 5));
  ASSERT_EQ(result->info.windows.size(), 2u);
  for (const LoadWindow& window : result->info.windows) {
    EXPECT_TRUE(window.start_s && window.end_s > window.start_s);
    EXPECT_EQ(window.by_time, false);
  }
  const auto again = ReadTrialResult(ToJson(*result));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->requests, result->requests);
  EXPECT_EQ(Find(*again, "e2el_s", LoadLevel::AtRate(20))->value,
            Find(*result, "e2el_s", LoadLevel::AtRate(20))->value);
}

TEST(Trial, WithoutABatchTheLoopsHaveItsTime) {
  TrialRequest request = SmallRequest();
  FakeTarget with, without;
  ASSERT_TRUE(Measured(with, request));
  request.workload.batch = false;
  const auto result = Measured(without, request);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_FALSE(Find(*result, "output_tokens_per_s", 0));
  EXPECT_TRUE(Find(*result, "output_tokens_per_s", 1));
  for (const RequestRow& row : result->requests) EXPECT_EQ(row.load, "clients");
  const auto longest_s = [](const FakeTarget& target) {
    std::map<int, double> deadlines_s;  // of the loops, by clients
    for (const LoadPlan& phase : target.phases)
      if (phase.shape.name != kWarmUpShape) deadlines_s[phase.concurrency] = phase.deadline_s;
    return deadlines_s;
  };
  EXPECT_EQ(longest_s(with).size(), 3u);
  EXPECT_EQ(longest_s(without).size(), 2u);
  for (const auto& [clients, deadline_s] : longest_s(without))
    EXPECT_GT(deadline_s, 0.45 * request.limit_s) << clients;
}

TEST(Trial, ReportsItsCircumstances) {
  FakeTarget target;
  target.generator.cpus = {3};
  target.generator.cpu_share = 0.25;
  const auto result = Measured(target, SmallRequest());
  ASSERT_TRUE(result) << result.error().message;
  for (const char* share : {"steal_share", "cpu_pressure_share"}) {
    EXPECT_GE(Find(*result, share, 0)->value, 0) << share;
    EXPECT_LE(Find(*result, share, 0)->value, 1) << share;
  }
  EXPECT_EQ(result->info.generator->cpus, std::vector<int>{3});
  EXPECT_EQ(Find(*result, "generator_cpu_share", 0)->value, 0.25);
  ASSERT_EQ(result->info.quantiles.size(), 4u);  // TTFT and gaps, of 1 and 3 clients
  for (const Distribution& one : result->info.quantiles) {
    ASSERT_EQ(one.quantiles.size(), 21u);
    EXPECT_LE(one.quantiles.front(), one.quantiles.back());
  }
}

TEST(Trial, TheSeedDrawsTheOrderOfTheBatchAndTheLoops) {
  const auto order = [](uint64_t seed) {
    FakeTarget target;
    TrialRequest request = SmallRequest();
    request.seed = seed;
    const auto result = Measured(target, request);
    EXPECT_TRUE(result);
    EXPECT_GE(result->info.warm_up_batches, 3);  // of the trial, of each loop
    std::vector<int> clients;
    for (const LoadPlan& phase : target.phases)
      if (phase.shape.name != kWarmUpShape) clients.push_back(phase.concurrency);
    return clients;
  };
  std::set<std::vector<int>> seen;
  for (uint64_t seed = 1; seed <= 12; ++seed) seen.insert(order(seed));
  EXPECT_GT(seen.size(), 2u);
  EXPECT_EQ(order(1), order(1));
}

TEST(Trial, NoPromptIsUsedTwice) {
  FakeTarget target;
  ASSERT_TRUE(Measured(target, SmallRequest()));
  std::set<uint64_t> seeds;
  for (const LoadPlan& phase : target.phases) seeds.insert(phase.seed);
  EXPECT_EQ(seeds.size(), target.phases.size());
}

TEST(Trial, AWarmUpHasAClientForEveryEngine) {
  FakeTarget target;
  target.engines = 7;
  ASSERT_TRUE(Measured(target, SmallRequest()));
  for (const LoadPlan& phase : target.phases)
    EXPECT_TRUE(phase.shape.name != kWarmUpShape || phase.concurrency >= 7);
}

TEST(Trial, UnfinishedLoadIsMeasuredAsFarAsItWent) {
  FakeTarget target;
  TrialRequest request = SmallRequest();
  request.workload.load.shape.output = Lengths::Fixed(120);  // a request takes 0.12 s
  request.limit_s = 0.2;
  const auto result = Measured(target, request);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_TRUE(Find(*result, "ttft_s", 1));
  EXPECT_TRUE(Find(*result, "tpot_s", 3));
  EXPECT_FALSE(result->info.cut.empty());
  ASSERT_EQ(result->info.windows.size(), 2u);
  for (const LoadWindow& window : result->info.windows) EXPECT_EQ(window.by_time, true);
}

// A batch of six takes 6.6 of the trial's 10 seconds, of which half is its share.
TEST(Trial, ABatchThatIsAlmostDoneEndsAndTheLoopsKeepTheirTime) {
  FakeTarget target;
  target.serves_s = 1.1;
  TrialRequest request = SmallRequest();
  request.limit_s = 10;
  const auto result = Measured(target, request);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_FALSE(result->info.has_cut_batch());
  EXPECT_GT(result->info.batch_over_s.value_or(0), 0.5);
  EXPECT_NEAR(Find(*result, "output_tokens_per_s", 0)->value, 4 / 1.1, 0.01);
  for (const LoadPlan& phase : target.phases) {
    if (phase.shape.name == kWarmUpShape) continue;
    EXPECT_GE(phase.deadline_s, 1.9) << phase.concurrency << " clients";
  }
  target.serves_s = 5;
  EXPECT_TRUE(Measured(target, request)->info.has_cut_batch()) << "the trial has an end";
}

// With continuous batching all answers of a batch end at about the same time.
TEST(Trial, ABatchWithoutAWholeAnswerSaysThatItWasCut) {
  FakeTarget target;
  TrialRequest request = SmallRequest();
  request.workload.concurrency.clear();
  request.workload.load.shape.output = Lengths::Fixed(1000);  // answers take a second
  request.limit_s = 0.1;
  target.step_s = 0.01;  // or ten
  const auto result = Measured(target, request);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_THAT(result->too_slow, HasSubstr("no request was answered"));
  EXPECT_TRUE(result->info.has_cut_batch());
}

TEST(Trial, ABatchThatEndsInItsShareIsNotLate) {
  FakeTarget target;
  const auto result = Measured(target, SmallRequest());
  ASSERT_TRUE(result);
  EXPECT_FALSE(result->info.batch_over_s);
}

TEST(Trial, TheBatchHasAsManyPromptsAsTheSweepFoundToFit) {
  FakeTarget target;
  TrialRequest request = SmallRequest();
  request.batch_prompts = 2;
  const auto read = ReadTrialRequest(ToJson(request));
  ASSERT_TRUE(read && Measured(target, *read));
  std::vector<int> prompts;
  for (const LoadPlan& phase : target.phases)
    if (phase.shape.name != kWarmUpShape && phase.concurrency == phase.num_prompts)
      prompts.push_back(phase.num_prompts);
  EXPECT_THAT(prompts, testing::ElementsAre(2)) << "of the workload's six";
}

TEST(Trial, ALoadMayLastAsLongAsTheStartTook) {
  FakeTarget target;
  target.step_s = 0.005;
  TrialRequest request = SmallRequest();
  request.limit_s = 0.02;
  const auto result = Measured(target, request, 10);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_TRUE(result->info.cut.empty());
}

TEST(Trial, AfterASlowStartTheLoadStillEndsBeforeTheDeadline) {
  TrialRequest request = SmallRequest();
  request.limit_s = 10;
  request.workload.load.shape.output = Lengths::Fixed(1000);  // an answer takes a second
  const auto end_s = [&](std::optional<double> deadline_s) {
    FakeTarget target;
    request.deadline_s = deadline_s;
    const int64_t now_ns = target.clock.NowNs();
    (void)Measured(target, request, 30);
    return 30 + static_cast<double>(target.clock.NowNs() - now_ns) * 1e-9;
  };
  constexpr double kDeadline = 40;
  EXPECT_GT(end_s({}), kLoadShare * kDeadline) << "the load is not long enough to be cut";
  EXPECT_LE(end_s(kDeadline), kLoadShare * kDeadline + 1e-6);
  EXPECT_GT(end_s(kDeadline), 30) << "there is no load";
}

// A loop of a fifth of 10 seconds answers after 4; extra time is 5 seconds in all.
TEST(Trial, ALoopMayTakeAllTheExtraTimeForItsFirstAnswerAndTheOthersKeepTheirs) {
  TrialRequest request = SmallRequest();
  request.workload.batch = false;
  request.workload.concurrency = {1, 2, 3, 4, 5};
  request.limit_s = 10;
  FakeTarget target;
  target.slow_loops = 1;
  target.slow_s = 4;
  const auto result = Measured(target, request);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->too_slow, "");
  for (const int clients : request.workload.concurrency)
    EXPECT_TRUE(Find(*result, "e2el_s", clients)) << clients;
  for (const LoadPlan& phase : target.phases) {
    if (phase.shape.name == kWarmUpShape) continue;
    EXPECT_GE(phase.deadline_s, 1.6) << phase.concurrency << " clients";
  }
  FakeTarget slower;
  slower.slow_loops = 1;
  slower.slow_s = 8;  // more than its share and all the extra time
  EXPECT_THAT(Measured(slower, request)->too_slow, HasSubstr("no request was answered"));
  FakeTarget slow_twice;
  slow_twice.slow_loops = 2;  // the second finds only what the first has left
  slow_twice.slow_s = 5.5;
  EXPECT_THAT(Measured(slow_twice, request)->too_slow, HasSubstr("no request was answered"));
}

TEST(Trial, APhaseWithoutAnAnswerIsTooSlowAndNamesTheWayOut) {
  FakeTarget target;
  target.never_answers = true;
  TrialRequest request = SmallRequest();
  request.limit_s = 0.2;
  const auto result = Measured(target, request);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_THAT(result->too_slow, HasSubstr("raise --trial-limit"));
}

TEST(Trial, RefusedRequestsAreAnErrorAndNotALackOfTime) {
  FakeTarget target;
  target.error = "HTTP 400: no";
  const auto result = Measured(target, SmallRequest());
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("HTTP 400: no"));
}

// It would look fast because it does less work, and a repetition would hide that.
TEST(Trial, AServerThatRefusesSomeRequestsFailsTheTrial) {
  FakeTarget target;
  target.fails_every = 4;
  TrialRequest request = SmallRequest();
  request.workload.concurrency = {};
  const auto result = Measured(target, request);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message,
            "1 of 6 requests of the offline batch failed: HTTP 500: out of order");
}

TEST(Trial, AServerThatEndsEndsTheTrial) {
  FakeTarget target;
  target.fails = true;
  const auto result = Measured(target, SmallRequest());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "the server ended with exit code 3");
}

TEST(Trial, ResultSurvivesTheRoundTripThroughJson) {
  TrialResult result;
  result.samples = {{"ttft_s", 4, 0.125}};
  result.requests.resize(1);
  result.requests[0].load = "search";
  result.requests[0].level = LoadLevel::AtRate(0.5);
  result.requests[0].record.token_ns = {1000};
  result.suspect = {"steal 2.0 %"};
  result.info.isa = "avx2";
  result.too_slow = "too slow";
  const auto again = ReadTrialResult(*Json::Parse(ToJson(result).Dump()));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(ToJson(*again), ToJson(result));
  EXPECT_EQ(again->requests, result.requests);
  EXPECT_FALSE(ReadTrialResult(*Json::Parse("{}")));
}

TEST(Trial, RequestSurvivesTheRoundTripThroughJson) {
  TrialRequest request = SmallRequest();
  request.configuration.options.model = "preset:tiny";
  request.configuration.options.kv_cache_bytes = uint64_t{512} << 20;
  request.configuration.replicas = 2;
  request.configuration.prefill_replicas = 1;
  request.configuration.runtime.allocator = "tcmalloc";
  request.deadline_s = 149.5;
  const auto again = ReadTrialRequest(*Json::Parse(ToJson(request).Dump()));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(ToJson(*again), ToJson(request));
  for (const SettingRow& row : SettingRows())
    EXPECT_EQ(row.get(again->configuration), row.get(request.configuration)) << row.key;
  EXPECT_FALSE(ReadTrialRequest(*Json::Parse("{}")));
}

}  // namespace
}  // namespace pinion::harness
