#include "harness/trial/trial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <set>

#include "engine/base/strings.h"
#include "fake_clock.h"
#include "fake_engine.h"
#include "harness/trial/conditions.h"
#include "harness/trial/own_ticks.h"
#include "harness/trial/slo_phase.h"

namespace pinion::harness {
namespace {

using testing::HasSubstr;

TrialRequest SmallRequest() {
  TrialRequest request;
  request.workload = {16, 4, {1, 3}, 6};
  request.seed = 5;
  request.limit_s = 20;
  return request;
}

// The trial of an engine that has just started, or `started_s` ago, by a clock that only its steps
// move: no machine is too slow for a limit.
Result<TrialResult> Measured(FakeEngine& engine, const TrialRequest& request,
                             double started_s = 0) {
  FakeClock clock;
  engine.clock = &clock;
  if (engine.step_ns == 0) engine.step_ns = 1'000'000;
  const int64_t start_ns = clock.NowNs() - static_cast<int64_t>(started_s * 1e9);
  auto result = MeasureTrial(engine, request, start_ns, clock);
  engine.clock = &kMachineClock;
  return result;
}

const MetricValue* Find(const TrialResult& result, const std::string& metric, int concurrency) {
  for (const MetricValue& sample : result.samples)
    if (sample.metric == metric && sample.concurrency == concurrency) return &sample;
  return nullptr;
}

TEST(Trial, MeasuresTheBatchAndEveryConcurrency) {
  FakeEngine engine;
  const auto result = Measured(engine, SmallRequest());
  ASSERT_TRUE(result) << result.error().message;
  for (const char* metric : {"output_tokens_per_s", "prefill_tokens_per_s", "decode_tokens_per_s",
                             "load_s", "start_s", "peak_rss_bytes"})
    EXPECT_TRUE(Find(*result, metric, 0)) << metric;
  for (int clients : {1, 3})
    for (const char* metric : {"ttft_s", "tpot_s", "itl_s", "e2el_s", "output_tokens_per_s"})
      EXPECT_TRUE(Find(*result, metric, clients)) << metric << clients;
  EXPECT_FALSE(Find(*result, "ttft_p90_s", 1));  // 6 requests do not support it
  EXPECT_EQ(Find(*result, "load_s", 0)->value, 0.25);
  EXPECT_GT(Find(*result, "peak_rss_bytes", 0)->value, 1 << 20);
  EXPECT_EQ(result->info.Find("isa")->string(), "fake");
  EXPECT_TRUE(result->info.Find("cut")->array().empty());
}

TEST(Trial, ReportsWorkAndCircumstances) {
  FakeEngine engine;
  engine.step_ns = 1'000'000;
  const auto result = Measured(engine, SmallRequest());
  ASSERT_TRUE(result) << result.error().message;
  for (const char* phase : {"prefill", "decode"})
    for (const char* rate : {"_flops_per_s", "_bytes_per_s"})
      EXPECT_GT(Find(*result, StrCat(phase, rate), 0)->value, 0) << phase << rate;
  for (const char* share : {"steal_share", "cpu_pressure_share"}) {
    EXPECT_GE(Find(*result, share, 0)->value, 0) << share;
    EXPECT_LE(Find(*result, share, 0)->value, 1) << share;
  }
  for (const int clients : {0, 1, 3}) EXPECT_EQ(Find(*result, "preemptions", clients)->value, 0);
  EXPECT_FALSE(Find(*result, "prefix_hit_share", 1));     // no prompt was looked up
  EXPECT_FALSE(Find(*result, "ceiling_bytes_per_s", 0));  // not requested
  const Json& quantiles = *result->info.Find("quantiles");
  ASSERT_EQ(quantiles.array().size(), 4u);  // TTFT and gaps, of 1 and 3 clients
  for (const Json& one : quantiles.array()) {
    ASSERT_EQ(one.Find("values")->array().size(), 21u);
    EXPECT_LE(one.Find("values")->array().front().number(),
              one.Find("values")->array().back().number());
  }
}

TEST(Trial, CeilingsThatCannotBeMeasuredLeaveAReason) {
  FakeEngine engine;
  TrialRequest request = SmallRequest();
  request.ceilings = true;
  const auto result = Measured(engine, request);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_FALSE(Find(*result, "ceiling_bytes_per_s", 0));
  EXPECT_THAT(result->info.Find("no_ceilings_because")->string(), HasSubstr("ISA 'fake'"));
}

TEST(Trial, TheSameSeedGivesTheSamePromptsAndTheSameHash) {
  FakeEngine first, second, other;
  TrialRequest request = SmallRequest();
  const auto a = Measured(first, request), b = Measured(second, request);
  request.seed = 6;
  const auto c = Measured(other, request);
  ASSERT_TRUE(a && b && c);
  EXPECT_EQ(a->output_hash, b->output_hash);
  EXPECT_NE(a->output_hash, c->output_hash);
}

TEST(Trial, LooksForTheLoadThatMeetsTheSlo) {
  FakeEngine engine;
  engine.step_ns = 2'000'000;
  TrialRequest request = SmallRequest();
  request.workload.slo = SloTarget{{.ttft_s = {}, .tpot_s = {}, .e2el_s = 10.0}};
  const auto all = Measured(engine, request);
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_GE(Find(*all, "slo_load", 0)->value, 2);  // nothing can fail
  const Json* slo = all->info.Find("slo");
  EXPECT_EQ(slo->Find("unit")->string(), "clients");
  EXPECT_GE(slo->Find("levels")->array().size(), 2u);

  request.workload.slo = SloTarget{{.ttft_s = 1e-4, .tpot_s = {}, .e2el_s = {}}, 0.9, true, 50};
  const auto none = Measured(engine, request);
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_FALSE(Find(*none, "slo_load", 0));  // a step takes longer than that
  EXPECT_EQ(none->info.Find("slo")->Find("levels")->array()[0].Find("good")->integer(), 0);
}

TEST(Trial, LoopsCountRequestsThatMeetTheSlo) {
  FakeEngine engine;
  engine.step_ns = 2'000'000;
  TrialRequest request = SmallRequest();
  request.workload.slo = SloTarget{{.ttft_s = {}, .tpot_s = {}, .e2el_s = 10.0}};
  const auto all = Measured(engine, request);
  request.workload.slo = SloTarget{{.ttft_s = 1e-4, .tpot_s = {}, .e2el_s = {}}};
  const auto none = Measured(engine, request);
  ASSERT_TRUE(all && none);
  for (const int clients : {1, 3}) {
    EXPECT_GT(Find(*all, "goodput", clients)->value, 0);
    EXPECT_EQ(Find(*none, "goodput", clients)->value, 0);
  }
}

TEST(Trial, TheSeedDrawsTheOrderOfTheBatchAndTheLoops) {
  const auto order = [](uint64_t seed) {
    FakeEngine engine;
    TrialRequest request = SmallRequest();
    request.seed = seed;
    const auto result = Measured(engine, request);
    EXPECT_TRUE(result);
    EXPECT_GE(result->info.Find("warm_up_batches")->integer(), 3);  // of the trial, of each loop
    std::vector<int> clients;
    for (const MetricValue& sample : result->samples)
      if (sample.metric == "preemptions") clients.push_back(sample.concurrency);
    return clients;
  };
  std::set<std::vector<int>> seen;
  for (uint64_t seed = 1; seed <= 12; ++seed) seen.insert(order(seed));
  EXPECT_GT(seen.size(), 2u);
  EXPECT_EQ(order(1), order(1));
}

TEST(Conditions, DetectsPinnedThreadsThatWereMoved) {
  EXPECT_EQ(MovedThreads({{1, 0}, {2, 1}}, {{1, 0}, {2, 1}, {3, 1}}, {1, 2, 3}), 0u);
  EXPECT_EQ(MovedThreads({{1, 0}, {2, 1}}, {{1, 5}}, {1, 2}), 2u);  // to another; to several
  EXPECT_EQ(MovedThreads({{1, 0}, {2, 1}}, {{1, 0}}, {1}), 0u);     // one has ended
}

TEST(Judge, CountsOnlyDecidedRequests) {
  const Slo slo{.ttft_s = 1.0, .tpot_s = {}, .e2el_s = {}};
  const auto count = [&](std::vector<int64_t> tokens_s, bool complete, int64_t cut_s) {
    for (int64_t& at : tokens_s) at *= 1'000'000'000;
    LevelRun level;
    Judge({0, tokens_s}, complete, cut_s < 0 ? INT64_MAX : cut_s * 1'000'000'000, slo, level);
    return std::pair(level.good, level.total);
  };
  EXPECT_EQ(count({1, 2}, true, 9), std::pair(size_t{1}, size_t{1}));
  EXPECT_EQ(count({2, 3}, true, 9), std::pair(size_t{0}, size_t{1}));
  EXPECT_EQ(count({}, false, 9), std::pair(size_t{0}, size_t{1}));   // it had waited too long
  EXPECT_EQ(count({1}, false, 9), std::pair(size_t{0}, size_t{0}));  // it may have been good
  EXPECT_EQ(count({}, false, -1), std::pair(size_t{0}, size_t{1}));  // it failed
}

TEST(Trial, NoPromptIsUsedTwice) {
  FakeEngine engine;
  ASSERT_TRUE(Measured(engine, SmallRequest()));
  std::sort(engine.prompts.begin(), engine.prompts.end());
  EXPECT_EQ(std::adjacent_find(engine.prompts.begin(), engine.prompts.end()), engine.prompts.end());
}

TEST(Trial, UnfinishedLoadIsMeasuredAsFarAsItWent) {
  FakeEngine engine;
  engine.never_ends = true;
  engine.step_ns = 1'000'000;
  TrialRequest request = SmallRequest();
  request.limit_s = 0.2;
  const auto result = Measured(engine, request);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_TRUE(engine.idle());
  EXPECT_TRUE(Find(*result, "ttft_s", 1));
  EXPECT_TRUE(Find(*result, "tpot_s", 3));
  EXPECT_FALSE(Find(*result, "e2el_s", 1));  // no request ended
  EXPECT_EQ(result->info.Find("cut")->array().size(), 3u);
  EXPECT_TRUE(result->output_hash.empty());
}

TEST(Trial, ALoadMayLastAsLongAsTheStartTook) {
  FakeEngine engine;
  engine.step_ns = 5'000'000;
  TrialRequest request = SmallRequest();
  request.limit_s = 0.02;
  const auto result = Measured(engine, request, 10);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_GE(engine.prompts.size(), 18u);  // the batch and both loops, whole
}

TEST(Trial, APhaseWithoutTokensIsTooSlowAndNamesTheWayOut) {
  FakeEngine engine;
  engine.never_answers = true;
  engine.step_ns = 1'000'000;
  TrialRequest request = SmallRequest();
  request.limit_s = 0.2;
  const auto result = Measured(engine, request);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_THAT(result->too_slow, HasSubstr("raise --trial-limit"));
}

TEST(Trial, ResultSurvivesTheRoundTripThroughJson) {
  TrialResult result;
  result.samples = {{"ttft_s", 4, 0.125}};
  result.output_hash = "00ff";
  result.suspect = {"steal 2.0 %"};
  result.info.Set("isa", "avx2");
  result.too_slow = "too slow";
  const auto again = ReadTrialResult(*Json::Parse(ToJson(result).Dump()));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(ToJson(*again), ToJson(result));
  EXPECT_FALSE(ReadTrialResult(*Json::Parse("{}")));
}

TEST(Trial, RequestSurvivesTheRoundTripThroughJson) {
  TrialRequest request = SmallRequest();
  request.options.model = "preset:tiny";
  request.options.kv_cache_bytes = uint64_t{512} << 20;
  const auto again = ReadTrialRequest(*Json::Parse(ToJson(request).Dump()));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(ToJson(*again), ToJson(request));
  EXPECT_FALSE(ReadTrialRequest(*Json::Parse("{}")));
}

TEST(Conditions, ReportsOnlyRealDisturbances) {
  Conditions before, after;
  after.now_ns = 10'000'000'000;
  after.cpu_ticks = 2000;
  EXPECT_TRUE(Disturbances(before, after, 2).empty());
  after.steal_ticks = 40;
  after.pressure_us = 5'000'000;
  after.busy_ticks = 1900;
  after.own_ticks = 1880;
  after.throttled_periods = 3;
  after.major_faults = 7;
  after.involuntary_switches = 2100;
  EXPECT_THAT(Disturbances(before, after, 2),
              testing::ElementsAre("steal 2.0 %", "throttled in 3 periods", "7 major faults",
                                   "210 involuntary switches per second"))
      << "too many threads of the engine itself are not a disturbance";
  after.own_ticks = 1700;
  EXPECT_THAT(Disturbances(before, after, 2),
              testing::Contains("CPU pressure 50 %, others took 10 % of the CPUs"));
  EXPECT_GT(Conditions::Now().cpu_ticks, 0u);
}

TEST(Conditions, FewSwitchesOfAShortLoadAreNotADisturbance) {
  Conditions before, after;
  after.now_ns = 100'000'000;
  after.involuntary_switches = 36;  // 360 a second
  EXPECT_TRUE(Disturbances(before, after, 2).empty());
  after.involuntary_switches = 210;
  EXPECT_THAT(Disturbances(before, after, 2),
              testing::ElementsAre("2100 involuntary switches per second"));
  after.now_ns = 10'000'000'000;
  EXPECT_TRUE(Disturbances(before, after, 2).empty());
}

TEST(Conditions, ChildrensTimeCountsAsOwn) {
  const Conditions before = Conditions::Now();
  const pid_t child = fork();
  if (child == 0) {
    while (clock() < CLOCKS_PER_SEC / 5) {
    }
    pause();  // alive when it is counted
  }
  while (OwnTicks() < before.own_ticks + 10) usleep(10'000);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const Conditions after = Conditions::Now();
  EXPECT_GE(after.own_ticks, before.own_ticks + 10) << "of one that was waited for, too";
  EXPECT_GE(after.busy_ticks, before.busy_ticks + 10);
}

}  // namespace
}  // namespace pinion::harness
