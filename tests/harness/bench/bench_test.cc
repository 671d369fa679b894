#include "harness/bench/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../fake_clock.h"
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

// A machine of fixed speed: 1e6 bytes or 1e6 operations a second.
class FakeCeilings : public CeilingProbe {
 public:
  Ceilings Measure() override {
    ++measured;
    return {1e6, flops_per_s};
  }
  double ReadRate() override {
    ++read;
    clock->SleepNs(read_ns);
    return 2e6;
  }
  uint64_t memory_bytes() const override { return 0; }

  const Clock* clock = nullptr;
  double flops_per_s = 1e6;
  int64_t read_ns = 0;
  int measured = 0, read = 0;
};

// By a clock that only the engine's steps and the probe move.
BenchResult Measured(FakeEngine& engine, BenchPlan plan, FakeCeilings* ceilings = nullptr) {
  FakeClock clock;
  if (engine.step_ns == 0) engine.step_ns = 1000;
  engine.clock = plan.clock = &clock;
  if (ceilings) ceilings->clock = &clock;
  EngineOptions options;
  options.model = "preset:tiny";
  auto result = RunBench(
      engine, options, plan, [](const BenchResult&) {}, ceilings);
  EXPECT_TRUE(result) << result.error().message;
  result->plan.clock = engine.clock = &kMachineClock;
  return *result;
}

BenchResult MeasuredBeside(FakeCeilings& ceilings, const BenchPlan& plan, int64_t step_ns = 0) {
  FakeEngine engine;
  engine.step_ns = step_ns;
  return Measured(engine, plan, &ceilings);
}

TEST(Bench, TellsForWhichShareOfTheStepsEachRankWaits) {
  FakeEngine engine;
  engine.wait_share = 0.25;
  const BenchResult result = Measured(engine, SmallPlan(BenchMode::kLatency));
  ASSERT_EQ(result.wait_shares.size(), 1u);
  EXPECT_NEAR(result.wait_shares[0], 0.25, 1e-9);
  EXPECT_THAT(Render(result), HasSubstr("rank 0 25.0 % of the steps' time"));
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

// The fake engine: one layer of 64, so per row 2 x (4 + 3) x 64 x 64 operations, per row of logits
// 2 x 100 x 64, per token seen 4 x 64; KV of a token 2 x 64 x 4 bytes; one head, one rank.
TEST(Bench, LimitsFollowFromTheRoundsWork) {
  FakeCeilings ceilings;
  BenchPlan plan = SmallPlan(BenchMode::kLatency);  // two prompts of 8, 4 tokens out
  const BenchResult result = MeasuredBeside(ceilings, plan);
  EXPECT_EQ(ceilings.measured, plan.rounds + 1);
  ASSERT_TRUE(result.limits);
  const StepCost& prefill = result.limits->prefill;
  const StepCost& decode = result.limits->decode;
  EXPECT_EQ(prefill.kv_bytes, 2u * 8 * 512);
  EXPECT_EQ(prefill.flops, 2u * (8 * 57'344 + 12'800 + 36 * 256));
  EXPECT_EQ(decode.weight_bytes, 3 * prefill.weight_bytes);  // three steps after one
  EXPECT_EQ(decode.kv_bytes, 2u * (9 + 10 + 11) * 512);
  EXPECT_EQ(decode.flops, 2u * (3 * (57'344 + 12'800) + 30 * 256));
}

TEST(Bench, TheSlowerOfBytesAndOperationsIsTheLimit) {
  FakeCeilings ceilings;
  const BenchPlan plan = SmallPlan(BenchMode::kLatency);
  ceilings.flops_per_s = 1;  // arithmetic bounds everything
  BenchResult result = MeasuredBeside(ceilings, plan);
  EXPECT_FALSE(result.limits->decode_bound_by_bytes);
  const auto decode_limit = [&] { return result.rows[1].limit->median; };
  EXPECT_EQ(result.rows[1].metric, "decode_tokens_per_s");
  EXPECT_DOUBLE_EQ(decode_limit(), 6 / static_cast<double>(result.limits->decode.flops));
  ceilings.flops_per_s = 1e15;
  result = MeasuredBeside(ceilings, plan);
  EXPECT_TRUE(result.limits->decode_bound_by_bytes);
  EXPECT_DOUBLE_EQ(decode_limit(), 6 / (static_cast<double>(result.limits->decode.bytes()) / 1e6));
  EXPECT_GT(result.rows[1].fraction_of_limit->median, 1);  // a fake engine outruns any machine
}

// Steps of 0.1 s: a prefill and two decodes make a quarter of a second, then one more decode. Of
// the probes around each, the one between the steps saw the faster memory.
TEST(Bench, MemoryIsMeasuredBetweenTheSteps) {
  FakeCeilings ceilings;
  BenchPlan plan = SmallPlan(BenchMode::kLatency);
  plan.rounds = 1;
  ceilings.flops_per_s = 1e15;
  const BenchResult result = MeasuredBeside(ceilings, plan, 100'000'000);
  EXPECT_EQ(ceilings.read, 1);
  const auto bytes = static_cast<double>(result.limits->decode.bytes());
  EXPECT_EQ(result.rows[1].metric, "decode_tokens_per_s");
  EXPECT_NEAR(result.rows[1].limit->median, 6 / (bytes / 2e6), 1e-9);
}

TEST(Bench, TheLoadsClockStandsStillWhileMemoryIsMeasured) {
  FakeCeilings ceilings;
  ceilings.read_ns = 2'000'000'000;
  BenchPlan plan = SmallPlan(BenchMode::kLatency);
  plan.rounds = 1;
  const BenchResult result = MeasuredBeside(ceilings, plan, 100'000'000);
  ASSERT_EQ(ceilings.read, 1);
  EXPECT_DOUBLE_EQ(ToJson(result).Find("e2el_s")->Find("median")->number(), 0.4);  // four steps
}

TEST(Bench, LimitsAreInJsonAndText) {
  FakeCeilings ceilings;
  const BenchResult result = MeasuredBeside(ceilings, SmallPlan(BenchMode::kLatency));
  const Json json = ToJson(result);
  const Json* limits = json.Find("limits");
  ASSERT_TRUE(limits && limits->is_object());
  EXPECT_EQ(limits->Find("read_bytes_per_s")->Find("median")->number(), 1e6);
  EXPECT_GT(limits->Find("prefill")->Find("flops")->integer(), 0);
  const Json* decode = limits->Find("metrics")->Find("decode_tokens_per_s");
  ASSERT_TRUE(decode);
  EXPECT_GT(decode->Find("limit")->Find("median")->number(), 0);
  EXPECT_GT(decode->Find("fraction")->Find("median")->number(), 0);
  EXPECT_THAT(Render(result), HasSubstr("of limit"));
}

TEST(Bench, WithoutCeilingsThereIsAReason) {
  FakeEngine engine;
  BenchResult result = Measured(engine, SmallPlan(BenchMode::kLatency));
  result.no_limits_because = "512 MiB are free";
  EXPECT_TRUE(ToJson(result).Find("limits")->is_null());
  EXPECT_EQ(ToJson(result).Find("no_limits_because")->string(), "512 MiB are free");
  EXPECT_THAT(Render(result), HasSubstr("no limits: 512 MiB are free"));
  EXPECT_THAT(Render(result), Not(HasSubstr("of limit")));
}

TEST(Bench, OneRequestAtATimeHasLimitsOfItsTimes) {
  FakeCeilings ceilings;
  BenchPlan plan = SmallPlan(BenchMode::kLatency);
  const auto limited = [&](const char* metric) {
    const BenchResult result = MeasuredBeside(ceilings, plan);
    for (const BenchRow& row : result.rows)
      if (row.metric == metric) return row.limit.has_value();
    return false;
  };
  EXPECT_FALSE(limited("ttft_s"));
  plan.batch = 1;
  EXPECT_TRUE(limited("ttft_s"));
  EXPECT_TRUE(limited("tpot_s"));
  EXPECT_TRUE(limited("e2el_s"));
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

TEST(Bench, PromptsShareTheRequestedPrefix) {
  FakeEngine engine;
  BenchPlan plan = SmallPlan(BenchMode::kLatency);
  plan.shared_prefix = 3;
  EXPECT_THAT(Render(Measured(engine, plan)), HasSubstr("the first 3 common, "));
  const auto& one = engine.prompts.end()[-2];
  const auto& other = engine.prompts.end()[-1];
  EXPECT_TRUE(std::equal(one.begin(), one.begin() + 3, other.begin()));
  EXPECT_NE(one, other);
}

TEST(Bench, GoodputIsShownOnlyWithALimit) {
  FakeEngine engine;
  BenchPlan plan = SmallPlan(BenchMode::kServing);
  EXPECT_FALSE(ToJson(Measured(engine, plan)).Find("goodput"));
  plan.slo.ttft_s = 1000;
  const BenchResult all = Measured(engine, plan);
  EXPECT_GT(ToJson(all).Find("goodput")->Find("median")->number(), 0);
  plan.slo.ttft_s = 0;
  EXPECT_EQ(ToJson(Measured(engine, plan)).Find("goodput")->Find("median")->number(), 0);
}

TEST(Bench, TextShowsEveryNumberWithItsFormula) {
  FakeEngine engine;
  const std::string text = Render(Measured(engine, SmallPlan(BenchMode::kServing)));
  EXPECT_THAT(text, HasSubstr("5 prompts from 2 clients in a closed loop, 6 rounds"));
  EXPECT_THAT(text, HasSubstr("(last token - first token) / (output tokens - 1)"));
  EXPECT_THAT(text, HasSubstr("tokens of pure decode steps / time of those steps"));
  EXPECT_THAT(text, Not(HasSubstr("p90")));  // 5 requests support no percentile
}

TEST(Bench, AStepIsSaidToHaveWaitedOnlyIfItTookLongerThanPredicted) {
  FakeEngine engine;
  BenchResult result = Measured(engine, SmallPlan(BenchMode::kServing));
  SpreadStep step;
  step.compute_s = 0.01;
  step.link_s = 0.002;
  step.calls = 65;
  step.delays = 64;
  step.bytes = 1 << 20;
  step.measured_s = 0.015;
  result.decode_step = step;
  step.measured_s = 0.011;
  result.prefill_step = step;
  const std::string text = Render(result);
  EXPECT_THAT(text,
              HasSubstr("a decode step is predicted to take 12.0 ms (10.0 ms of computing, as "
                        "measured, and 2.00 ms for 65 calls, 64 of them one after the other, and "
                        "1.0 MiB) and took 15.0 ms; the "
                        "difference is time spent waiting for other processes or for a "
                        "slower link\n"));
  EXPECT_THAT(text, HasSubstr("one after the other, and 1.0 MiB) and took 11.0 ms\n"));
}

TEST(Bench, ImpossiblePlansAreRefused) {
  BenchPlan plan;
  plan.output_len = 1;
  EXPECT_FALSE(Validate(plan));
  plan = {};
  plan.rounds = 0;
  EXPECT_FALSE(Validate(plan));
  plan = {};
  plan.shared_prefix = plan.prompt_len + 1;
  EXPECT_THAT(Validate(plan).error().message,
              HasSubstr("--shared-prefix is 513, want 0 to --prompt-len, 512"));
  EXPECT_TRUE(Validate(BenchPlan()));
}

TEST(Bench, APromptOfNoGivenLengthFitsTheModel) {
  BenchPlan plan;  // 512 tokens and 64 of the answer
  EngineInfo engine;
  const auto fit = [&](size_t longest) {
    engine.max_model_len = longest;
    return FitPrompt(engine, plan);
  };
  for (const size_t roomy : {131'072, 577, 576}) {
    ASSERT_TRUE(fit(roomy));
    EXPECT_EQ(plan.prompt_len, 512) << roomy;
  }
  ASSERT_TRUE(fit(575));
  EXPECT_EQ(plan.prompt_len, 511);
  ASSERT_TRUE(fit(512));
  EXPECT_EQ(plan.prompt_len, 448);
  ASSERT_TRUE(fit(65));
  EXPECT_EQ(plan.prompt_len, 1);
  EXPECT_THAT(fit(64).error().message,
              HasSubstr("--output-len is 64, want at most 63: prompt and answer share the 64"));
  plan = {};
  engine.task = ModelTask::kEmbed;  // without an answer
  ASSERT_TRUE(fit(512));
  EXPECT_EQ(plan.prompt_len, 512);
  ASSERT_TRUE(fit(64));
  EXPECT_EQ(plan.prompt_len, 64);
}

}  // namespace
}  // namespace pinion::harness
