#include "harness/sweep/predict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/model/model.h"

namespace pinion::harness {
namespace {

using testing::HasSubstr;

constexpr char kProbe[] = R"({
"memory_read":[{"threads":1,"bytes_per_s":1e10},{"threads":3,"bytes_per_s":2e10}],
"compute":[{"isa":"avx2","dtype":"float32","threads":2,"flops_per_s":1e11},
{"isa":"avx512_bf16","dtype":"bfloat16","threads":2,"flops_per_s":8e11},
{"isa":"avx512_bf16","dtype":"float32","threads":2,"flops_per_s":2e11}]})";

ProbedMachine Machine() { return *ProbedMachine::Parse(*Json::Parse(kProbe)); }

TEST(ProbedMachine, InterpolatesBandwidthAndScalesArithmetic) {
  const ProbedMachine machine = Machine();
  EXPECT_DOUBLE_EQ(machine.ReadBytesPerS(1), 1e10);
  EXPECT_DOUBLE_EQ(machine.ReadBytesPerS(2), 1.5e10);
  EXPECT_DOUBLE_EQ(machine.ReadBytesPerS(64), 2e10);
  EXPECT_DOUBLE_EQ(*machine.FlopsPerS("avx512_bf16", "bfloat16", 1), 4e11);
  EXPECT_DOUBLE_EQ(*machine.FlopsPerS("avx512_bf16", "float32", 2), 2e11);
  // A path without an instruction for the type widens it.
  EXPECT_DOUBLE_EQ(*machine.FlopsPerS("avx2", "bfloat16", 2), 1e11);
  EXPECT_EQ(machine.Isas(), (std::vector<std::string>{"avx2", "avx512_bf16"}));
}

TEST(ProbedMachine, SaysWhatIsMissing) {
  EXPECT_THAT(Machine().FlopsPerS("amx", "bfloat16", 1).error().message,
              HasSubstr("not measured ISA path 'amx'; it has avx2, avx512_bf16"));
  EXPECT_THAT(ProbedMachine::Parse(*Json::Parse("{}")).error().message,
              HasSubstr("no 'memory_read' in it"));
}

TEST(Predict, OneClientsDecodeIsTheWeightsOverTheBandwidth) {
  const auto model = FindModel("preset:qwen2.5-0.5b");
  ASSERT_TRUE(model) << model.error().message;
  Host host;
  host.machine = *ImagineMachine("pack:1 numa:1(memory=32GB) core:3 pu:1");
  host.budget = *ComputeBudget(host.machine);
  host.isas = Machine().Isas();
  Definition definition;
  definition.candidates = {*Json::Parse(R"({"threads_bind":"0"})")};
  EngineOptions base;
  base.model = "preset:qwen2.5-0.5b";
  const auto points = Expand(definition, base, host, model->spec);
  ASSERT_TRUE(points) << points.error().message;
  const auto all = Predict((*points)[0], model->spec, {}, Machine());
  const auto one = Predict((*points)[1], model->spec, {}, Machine());
  ASSERT_TRUE(all && one);
  EXPECT_TRUE(all->decode_bound_by_bytes);
  // Weights in bfloat16 over 20 GB/s, and up to a tenth more for the keys and values.
  const double weights_s = static_cast<double>(ParameterCount(model->spec)) * 2 / 2e10;
  EXPECT_GT(all->tpot_s, 0.9 * weights_s);
  EXPECT_LT(all->tpot_s, 1.2 * weights_s);
  EXPECT_NEAR(one->tpot_s / all->tpot_s, 2, 1e-6);  // half the bandwidth
  EXPECT_LT(one->output_tokens_per_s, all->output_tokens_per_s);
  const auto plan = PredictAll(*points, host, model->spec, base.model, {}, *Json::Parse(kProbe));
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->Find("candidates")->array()[0].Find("label")->string(), "default");
  EXPECT_THAT(RenderPlan(*plan), HasSubstr("PREDICTION"));
}

}  // namespace
}  // namespace pinion::harness
