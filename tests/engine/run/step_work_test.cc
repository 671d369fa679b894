#include "engine/run/step_work.h"

#include <gtest/gtest.h>

#include "engine/decoder/cost.h"

namespace pinion {
namespace {

DecoderSpec SmallSpec() {
  DecoderSpec spec;
  spec.vocabulary = 100;
  spec.layers = 1;
  spec.layer_specs.resize(1);
  spec.hidden = spec.intermediate = 64;
  spec.heads = spec.kv_heads = 1;
  spec.head_dim = 64;
  spec.tied_head = true;
  return spec;
}

EngineInfo SmallInfo() {
  EngineInfo info;
  info.dtype = "float32";
  info.plan.ranks.resize(1);
  return info;
}

StepMark After(int64_t ms) { return {.ns = ms * 1'000'000}; }

TEST(StepWork, CountsTokensThatJumpedWithTheRowsThatComputeThem) {
  StepWorkMeter meter(SmallSpec(), kernels::Dtype::kF32, SmallInfo());
  Sequence sequence;
  sequence.jumped = 3;
  meter.Add({{&sequence, 6, 2, false}}, 0, {}, After(125));  // cut: the rest comes with the next
  EXPECT_EQ(meter.decode().tokens, 0u);
  meter.Add({{&sequence, 8, 2, true}}, 0, {}, After(125));
  EXPECT_EQ(meter.decode().tokens, 4u);
}

TEST(StepWork, AddsUpStepsByWhetherTheyComputePrompts) {
  const DecoderSpec spec = SmallSpec();
  const CostModel cost(spec, kernels::Dtype::kF32, kernels::KvDtype::kF32, 1);
  StepWorkMeter meter(spec, kernels::Dtype::kF32, SmallInfo());
  // A prompt's first 8 rows beside a decode at position 5; the prompt's end; two decodes.
  meter.Add({{nullptr, 5, 1, true}, {nullptr, 0, 8, false}}, 8, {}, After(250));
  meter.Add({{nullptr, 8, 2, true}}, 2, {}, After(500));
  meter.Add({{nullptr, 6, 1, true}, {nullptr, 10, 1, true}}, 0, {}, After(125));
  EXPECT_EQ(meter.prefill().tokens, 10u);
  EXPECT_EQ(meter.prefill().seconds, 0.75);
  StepCost prefill = cost.Rows(5, 1, 1);
  for (const StepCost& more :
       {cost.Rows(0, 8, 0), cost.Weights(true), cost.Rows(8, 2, 1), cost.Weights(true)})
    prefill += more;
  EXPECT_EQ(meter.prefill().least.bytes(), prefill.bytes());
  EXPECT_EQ(meter.prefill().least.operations(), prefill.operations());
  EXPECT_EQ(meter.decode().tokens, 2u);
  EXPECT_EQ(meter.decode().seconds, 0.125);
  StepCost decode = cost.Rows(6, 1, 1);
  decode += cost.Rows(10, 1, 1);
  decode += cost.Weights(true);
  EXPECT_EQ(meter.decode().least.bytes(), decode.bytes());
}

TEST(StepWork, CountsExpertsThatWereReadAndKeysThatWereShared) {
  const DecoderSpec spec = SmallSpec();
  StepWorkMeter plain(spec, kernels::Dtype::kF32, SmallInfo()),
      counted(spec, kernels::Dtype::kF32, SmallInfo());
  const std::vector<Slice> slices = {{nullptr, 6, 1, true}, {nullptr, 6, 1, true}};
  plain.Add(slices, 0, {}, {});
  counted.Add(slices, 0, {.reads = {1000, 100}}, {.reads = {1700, 228}});
  EXPECT_EQ(counted.decode().least.weight_bytes, plain.decode().least.weight_bytes + 700);
  EXPECT_EQ(counted.decode().least.kv_bytes, plain.decode().least.kv_bytes - 128);
  const StepWork none = counted.decode() - counted.decode();
  EXPECT_EQ(none.tokens, 0u);
  EXPECT_EQ(none.least.bytes(), 0u);
}

TEST(StepWork, AStepWithoutLogitsDoesNotReadTheHead) {
  StepWorkMeter with(SmallSpec(), kernels::Dtype::kF32, SmallInfo()),
      without(SmallSpec(), kernels::Dtype::kF32, SmallInfo());
  with.Add({{nullptr, 0, 8, true}}, 8, {}, {});
  without.Add({{nullptr, 0, 8, false}}, 8, {}, {});
  EXPECT_LT(without.prefill().least.weight_bytes, with.prefill().least.weight_bytes);
}

}  // namespace
}  // namespace pinion
