#include "harness/trial/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_engine.h"

namespace pinion::harness {
namespace {

using testing::HasSubstr;
using testing::Not;

BenchPlan SmallPlan(BenchMode mode) {
  BenchPlan plan;
  plan.mode = mode;
  plan.prompt_len = 8;
  plan.output_len = 4;
  plan.batch = 2;
  plan.num_prompts = 5;
  return plan;
}

BenchResult Measured(FakeEngine& engine, const BenchPlan& plan) {
  EngineOptions options;
  options.model = "preset:tiny";
  auto result = RunBench(engine, options, plan, [](int) {});
  EXPECT_TRUE(result) << result.error().message;
  return *result;
}

TEST(Bench, JsonHoldsItsContract) {
  FakeEngine engine;
  const Json json = ToJson(Measured(engine, SmallPlan(BenchMode::kLatency)));
  for (const char* rate : {"prefill_tokens_per_s", "decode_tokens_per_s"}) {
    ASSERT_TRUE(json.Find(rate)) << rate;
    for (const char* key : {"median", "low", "high"})
      EXPECT_TRUE(json.Find(rate)->Find(key)->is_number()) << rate << key;
  }
  EXPECT_EQ(json.Find("load_s")->number(), 0.25);
  EXPECT_GT(json.Find("peak_rss_bytes")->integer(), 0);
  EXPECT_EQ(json.Find("isa")->string(), "fake");
  EXPECT_EQ(json.Find("threads")->integer(), 1);
  EXPECT_EQ(json.Find("config")->Find("model")->string(), "preset:tiny");
}

TEST(Bench, FewRoundsHaveNoInterval) {
  FakeEngine engine;
  BenchPlan plan = SmallPlan(BenchMode::kThroughput);
  plan.rounds = 5;
  const BenchResult result = Measured(engine, plan);
  EXPECT_TRUE(ToJson(result).Find("decode_tokens_per_s")->Find("low")->is_null());
  EXPECT_THAT(Render(result), HasSubstr("no interval below 6 rounds"));
}

TEST(Bench, ModesLoadTheEngineDifferently) {
  FakeEngine latency, throughput, serving;
  Measured(latency, SmallPlan(BenchMode::kLatency));
  EXPECT_EQ(latency.most_live, 2u);
  EXPECT_EQ(latency.prompts.size(), 2u + 6 * 2);  // the warm-up and six rounds
  Measured(throughput, SmallPlan(BenchMode::kThroughput));
  EXPECT_EQ(throughput.most_live, 5u);
  Measured(serving, SmallPlan(BenchMode::kServing));
  EXPECT_EQ(serving.most_live, 2u);
  EXPECT_EQ(serving.prompts.size(), 2u + 6 * 5);
}

TEST(Bench, GoodputIsShownWhereALimitWasGiven) {
  FakeEngine engine;
  BenchPlan plan = SmallPlan(BenchMode::kServing);
  EXPECT_FALSE(Measured(engine, plan).Find("goodput"));
  plan.slo.ttft_s = 1000;
  const BenchResult all = Measured(engine, plan);
  EXPECT_GT(all.Find("goodput")->median, 0);
  plan.slo.ttft_s = 0;
  EXPECT_EQ(Measured(engine, plan).Find("goodput")->median, 0);
}

TEST(Bench, TextShowsEveryNumberWithItsFormula) {
  FakeEngine engine;
  const std::string text = Render(Measured(engine, SmallPlan(BenchMode::kServing)));
  EXPECT_THAT(text, HasSubstr("5 prompts from 2 clients in a closed loop, 6 rounds"));
  EXPECT_THAT(text, HasSubstr("(last token - first token) / (output tokens - 1)"));
  EXPECT_THAT(text, HasSubstr("tokens of pure decode steps / time of those steps"));
  EXPECT_THAT(text, Not(HasSubstr("p90")));  // 5 requests support no percentile
}

TEST(Bench, ImpossiblePlansAreRefused) {
  BenchPlan plan;
  plan.output_len = 1;
  EXPECT_FALSE(Validate(plan));
  plan = {};
  plan.rounds = 0;
  EXPECT_FALSE(Validate(plan));
  EXPECT_TRUE(Validate(BenchPlan()));
}

}  // namespace
}  // namespace pinion::harness
