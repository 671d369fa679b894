#include "harness/sweep/predict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/checkpoint/model.h"
#include "engine/run/start.h"

namespace pinion::harness {
namespace {

using testing::HasSubstr;

constexpr char kProbe[] = R"({
"memory_read":[{"threads":1,"bytes_per_s":1e10},{"threads":3,"bytes_per_s":2e10}],
"compute":[{"isa":"avx2","dtype":"float32","threads":2,"flops_per_s":1e11},
{"isa":"avx512_bf16","dtype":"bfloat16","threads":2,"flops_per_s":8e11},
{"isa":"avx512_bf16","dtype":"float32","threads":2,"flops_per_s":2e11}],
"int8":[{"isa":"avx512_bf16","threads":2,"operations_per_s":3.2e12}]})";

MachineCeilings Probed() { return *MachineCeilings::Parse(*Json::Parse(kProbe)); }

TEST(MachineCeilings, InterpolatesBandwidthAndScalesArithmetic) {
  const MachineCeilings machine = Probed();
  EXPECT_DOUBLE_EQ(machine.ReadBytesPerS({{0, 1}}), 1e10);
  EXPECT_DOUBLE_EQ(machine.ReadBytesPerS({{0, 2}}), 1.5e10);
  EXPECT_DOUBLE_EQ(machine.ReadBytesPerS({{0, 64}}), 2e10);
  EXPECT_DOUBLE_EQ(machine.PeakOf("avx512_bf16", "bfloat16", 1)->flops_per_s, 4e11);
  EXPECT_DOUBLE_EQ(machine.PeakOf("avx512_bf16", "bfloat16", 1)->int8_ops_per_s, 1.6e12);
  EXPECT_DOUBLE_EQ(machine.PeakOf("avx512_bf16", "float32", 2)->flops_per_s, 2e11);
  // A path without an instruction for the type widens it.
  EXPECT_DOUBLE_EQ(machine.PeakOf("avx2", "bfloat16", 2)->flops_per_s, 1e11);
  EXPECT_DOUBLE_EQ(machine.PeakOf("avx2", "bfloat16", 2)->int8_ops_per_s, 1e11);
  EXPECT_EQ(machine.Isas(), (std::vector<std::string>{"avx2", "avx512_bf16"}));
}

// If a probe lacks int8 by path, the best instruction bounds all paths.
TEST(MachineCeilings, IntegerBoundIsThePathsOwnOrElseTheBestInstructions) {
  constexpr double kMargin = MachineCeilings::kMargin;
  EXPECT_DOUBLE_EQ(Probed().PeakAtMost("avx512_bf16", 1)->int8_ops_per_s, kMargin * 1.6e12);
  EXPECT_DOUBLE_EQ(Probed().PeakAtMost("avx512_bf16", 1)->flops_per_s, kMargin * 4e11);
  Json older = *Json::Parse(kProbe);
  older.Set("int8", Json());
  older.Set("instructions", *Json::Parse(R"([
    {"type":"int8","name":"VPDPBUSD","threads":2,"operations_per_s":4e12},
    {"type":"float16","name":"VFMADDPH","threads":2,"operations_per_s":9e12}])"));
  const auto peak = MachineCeilings::Parse(older)->PeakAtMost("avx2", 1);
  EXPECT_DOUBLE_EQ(peak->int8_ops_per_s, kMargin * 2e12);
  EXPECT_DOUBLE_EQ(peak->flops_per_s, kMargin * 5e10);
}

TEST(MachineCeilings, ErrorsNameTheMissingPart) {
  EXPECT_THAT(Probed().PeakOf("amx", "bfloat16", 1).error().message,
              HasSubstr("not measured ISA path 'amx'; it has avx2, avx512_bf16"));
  EXPECT_THAT(MachineCeilings::Parse(*Json::Parse("{}")).error().message,
              HasSubstr("it has no 'memory_read'"));
}

// A machine of three cores, its points with every candidate of `definition`.
struct Imagined {
  Host host;
  std::vector<Point> points;
};
Imagined Imagine(const std::string& model, const char* candidates) {
  Imagined imagined;
  imagined.host.machine = *ImagineMachine("pack:1 numa:1(memory=900GB) core:3 pu:1");
  imagined.host.budget = *ComputeBudget(imagined.host.machine);
  imagined.host.isas = Probed().Isas();
  Definition definition;
  definition.candidates = Json::Parse(candidates)->array();
  EngineOptions base;
  base.model = model;
  auto points = Expand(definition, base, imagined.host, FindModel(model)->spec);
  EXPECT_TRUE(points) << points.error().message;
  imagined.points = *points;
  return imagined;
}

PlannedModel InBf16(const char* model) { return {FindModel(model)->spec, kernels::Dtype::kBf16}; }

TEST(Predict, DecodeOfOneClientTakesTheWeightsOverTheBandwidth) {
  const Imagined imagined = Imagine("preset:qwen2.5-0.5b", R"([{"threads_bind":"0"}])");
  const PlannedModel model = InBf16("preset:qwen2.5-0.5b");
  const auto all = Predict(imagined.points[0], model, {}, Probed(), imagined.host.machine, 0);
  const auto one = Predict(imagined.points[1], model, {}, Probed(), imagined.host.machine, 0);
  ASSERT_TRUE(all && one);
  EXPECT_TRUE(all->decode_bound_by_bytes);
  // Weights in bfloat16 over 20 GB/s, and up to a tenth more for the keys and values.
  const double weights_s = static_cast<double>(ParameterCount(model.spec)) * 2 / 2e10;
  EXPECT_GT(all->tpot_s, 0.9 * weights_s);
  EXPECT_LT(all->tpot_s, 1.2 * weights_s);
  EXPECT_NEAR(one->tpot_s / all->tpot_s, 2, 1e-6);  // half the bandwidth
  EXPECT_LT(one->output_tokens_per_s, all->output_tokens_per_s);
}

TEST(Predict, BoundUsesRaisedCeilingsAndIsNeverBelowTheExpectation) {
  const Imagined imagined = Imagine("preset:qwen2.5-0.5b", R"([{"threads_bind":"0"}])");
  const PlannedModel model = InBf16("preset:qwen2.5-0.5b");
  const auto all = *Predict(imagined.points[0], model, {}, Probed(), imagined.host.machine, 0);
  const auto one = *Predict(imagined.points[1], model, {}, Probed(), imagined.host.machine, 0);
  EXPECT_NEAR(all.tpot_s / all.at_best.tpot_s, MachineCeilings::kMargin, 1e-9);
  // One thread may have all of the bandwidth, but not the arithmetic of others.
  EXPECT_NEAR(one.at_best.tpot_s, all.at_best.tpot_s, 1e-12);
  EXPECT_NEAR(one.at_best.ttft_s / all.at_best.ttft_s, 3, 1e-6);
  EXPECT_GT(one.at_best.output_tokens_per_s, one.output_tokens_per_s);
  // Caches that hold everything leave the arithmetic alone to bound it.
  const auto cached =
      *Predict(imagined.points[0], model, {}, Probed(), imagined.host.machine, uint64_t{1} << 40);
  EXPECT_LT(cached.at_best.tpot_s, all.at_best.tpot_s / 2);
  EXPECT_DOUBLE_EQ(cached.tpot_s, all.tpot_s);
}

// Each replica reads all weights on its own, from memory that all share; alone it has its own
// threads and all of the memory.
TEST(Predict, EachReplicaReadsItsOwnWeights) {
  const Imagined imagined = Imagine("preset:qwen2.5-0.5b", R"([{"replicas":3}])");
  const PlannedModel model = InBf16("preset:qwen2.5-0.5b");
  LoadPlan decoding{.shape = WorkloadShape::Fixed(1, 65), .num_prompts = 3};
  const auto one =
      *Predict(imagined.points[0], model, decoding, Probed(), imagined.host.machine, 0);
  const auto three =
      *Predict(imagined.points[1], model, decoding, Probed(), imagined.host.machine, 0);
  EXPECT_NEAR(one.output_tokens_per_s / three.output_tokens_per_s, 3, 0.05);
  EXPECT_NEAR(three.tpot_s / one.tpot_s, 2, 1e-6);  // one thread reads at half of the bandwidth
  EXPECT_NEAR(three.at_best.tpot_s, one.at_best.tpot_s, 1e-12);
  // A batch that does not divide, and one that leaves replicas idle.
  for (const int prompts : {1, 2, 4, 5}) {
    decoding.num_prompts = prompts;
    const auto some =
        *Predict(imagined.points[1], model, decoding, Probed(), imagined.host.machine, 0);
    EXPECT_GT(some.at_best.output_tokens_per_s, some.output_tokens_per_s) << prompts;
  }
}

// Matrices that stay in integers take the time of the integers' own rate, the rest that of floats.
TEST(Predict, IntegersAndFloatsEachTakeTheirOwnRate) {
  Imagined imagined = Imagine("preset:qwen2.5-0.5b", "[]");
  imagined.points[0].configuration.options.isa = "avx512_bf16";
  const PlannedModel floats = InBf16("preset:qwen2.5-0.5b");
  PlannedModel integers = floats;
  for (int layer = 0; layer < integers.spec.layers; ++layer)
    for (const MatrixRole role : {MatrixRole::kMlpIn, MatrixRole::kDown})
      integers.formats.Set(layer, role, {});
  const LoadPlan prompt{.shape = WorkloadShape::Fixed(512, 64)};
  const auto ttft_s = [&](const PlannedModel& model, double int8_ops_per_s) {
    Json probe = *Json::Parse(kProbe);
    probe.Set("int8",
              Json::Array{Json::Object{
                  {"isa", "avx512_bf16"}, {"threads", 3}, {"operations_per_s", int8_ops_per_s}}});
    return Predict(imagined.points[0], model, prompt, *MachineCeilings::Parse(probe),
                   imagined.host.machine, 0)
        ->ttft_s;
  };
  EXPECT_DOUBLE_EQ(ttft_s(floats, 1e12), ttft_s(floats, 2e12));
  const double ops = 512.0 * 24 * 3 * 2 * 896 * 4864;  // tokens, layers, matrices of the MLP
  EXPECT_NEAR(ttft_s(integers, 1e12) - ttft_s(integers, 2e12), ops / 2e12, 1e-6 * ops / 2e12);
}

// A step of eight rows touches more experts than one of one row, and at the least as many.
TEST(Predict, ExpertsCountAsExpected) {
  const Imagined imagined = Imagine("preset:qwen3-30b-a3b@3", "[]");
  const PlannedModel model = InBf16("preset:qwen3-30b-a3b@3");
  const LoadPlan one{.shape = WorkloadShape::Fixed(1, 3), .num_prompts = 1};
  const LoadPlan eight{.shape = WorkloadShape::Fixed(1, 3), .num_prompts = 8};
  const auto of_one = *Predict(imagined.points[0], model, one, Probed(), imagined.host.machine, 0);
  const auto of_eight =
      *Predict(imagined.points[0], model, eight, Probed(), imagined.host.machine, 0);
  const double one_s = 3 / of_one.output_tokens_per_s;
  const double eight_s = 24 / of_eight.output_tokens_per_s;
  constexpr double kExpert = 3 * 768 * 2048 * 2, kLayers = 3, kPasses = 3;
  const double touched = 128 * (1 - std::pow(1 - 8.0 / 128, 8));
  const double more_s = kPasses * kLayers * kExpert * (touched - 8) / 2e10;
  EXPECT_NEAR(eight_s - one_s, more_s, 0.01 * more_s);  // the rest: keys and values
  EXPECT_LT(24 / of_eight.at_best.output_tokens_per_s, one_s);
}

// A step that holds fewer contexts reads the weights more often for the same tokens.
TEST(Predict, LittleKvSpaceTakesMoreSteps) {
  const Imagined imagined = Imagine("preset:qwen2.5-0.5b", R"([{"kv_cache_space":0.03125}])");
  const PlannedModel model = InBf16("preset:qwen2.5-0.5b");
  // 12 KiB a token, so 32 MiB hold two sequences.
  const LoadPlan decoding{.shape = WorkloadShape::Fixed(1, 1023), .num_prompts = 8};
  const auto all =
      *Predict(imagined.points[0], model, decoding, Probed(), imagined.host.machine, 0);
  const auto two =
      *Predict(imagined.points[1], model, decoding, Probed(), imagined.host.machine, 0);
  EXPECT_GT(all.output_tokens_per_s / two.output_tokens_per_s, 3);
  EXPECT_LT(all.output_tokens_per_s / two.output_tokens_per_s, 4);
  EXPECT_DOUBLE_EQ(all.tpot_s, two.tpot_s);
  EXPECT_DOUBLE_EQ(all.at_best.output_tokens_per_s, two.at_best.output_tokens_per_s);
}

}  // namespace
}  // namespace pinion::harness
