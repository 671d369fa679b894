// Presets whose weights Pinion rounds itself: "preset:NAME:SCHEME".

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/checkpoint/model.h"
#include "engine/checkpoint/quantised.h"
#include "engine/checkpoint/rounding.h"
#include "kernels/kernels.h"

namespace pinion {
namespace {

using ::testing::HasSubstr;

const std::string kGate = "model.layers.0.mlp.gate_proj.weight";

// A rounded preset's weights are those of the preset, each within half a step.
TEST(RoundedPreset, Fp8IsWithinHalfAStepOfTheWeights) {
  const auto files = FindModel("preset:tiny:fp8").value();
  const auto rounded = OpenWeights(files).value();
  const auto plain = OpenWeights(FindModel("preset:tiny").value()).value();
  const QuantisedTensor* tensor = rounded->Quantised(kGate);
  ASSERT_NE(tensor, nullptr);
  EXPECT_TRUE(tensor->range().e4m3);
  const TensorInfo info = plain->Find(kGate).value();
  std::vector<std::byte> scratch;
  std::vector<float> weights(tensor->columns()), got(tensor->columns());
  kernels::Convert(reinterpret_cast<std::byte*>(weights.data()), kernels::Dtype::kF32,
                   plain->Rows(info, 3, 1, scratch), info.dtype, weights.size());
  Dequantise(*tensor, 3, 1, got.data());
  for (size_t begin = 0; begin < weights.size(); begin += tensor->group()) {
    const size_t end = std::min(begin + tensor->group(), weights.size());
    float largest = 0;
    for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(weights[i]));
    ASSERT_GT(largest, 0);
    const float least = largest / 448 * 0x1p-10f;  // half of the step of subnormals
    for (size_t i = begin; i < end; ++i)
      EXPECT_LE(std::abs(got[i] - weights[i]), std::max(std::abs(weights[i]) / 16, least) * 1.001f);
  }
  EXPECT_EQ(rounded->Quantised("lm_head.weight"), nullptr);
}

// The values of e2m1 times a power of two that puts the group's largest weight at 4 to 8 units, of
// which 6 is the largest code: nothing is further off than half of the step where it lies, or than
// what is above 6 units.
TEST(RoundedPreset, Mxfp4RoundsExpertsAloneEachWeightToItsNearestCode) {
  const std::string down = "model.layers.1.mlp.experts.5.down_proj.weight";
  const auto rounded = OpenWeights(FindModel("preset:gpt-oss-20b@2:mxfp4").value()).value();
  EXPECT_EQ(rounded->Quantised("model.layers.1.self_attn.q_proj.weight"), nullptr);
  EXPECT_EQ(rounded->Quantised("model.layers.1.mlp.router.weight"), nullptr);
  const QuantisedTensor* tensor = rounded->Quantised(down);
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->range().scale_type, kernels::ScaleType::kPower);
  EXPECT_EQ(tensor->group(), 32u);

  const RoundingScheme scheme{4, 32, true, CodeKind::kMxfp4};
  std::vector<float> weights(64);
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i] = (i % 2 ? -0.01f : 0.01f) * static_cast<float>(i);  // groups end at 0.31, 0.63
  std::vector<int8_t> codes(64);
  float scales[2], offsets[2];
  RoundRow(scheme, weights.data(), weights.size(), codes.data(), scales, offsets);
  for (const size_t group : {0u, 1u}) {
    const float largest = group ? 0.63f : 0.31f;
    const float unit = 2 * scales[group];
    EXPECT_EQ(std::exp2(std::round(std::log2(unit))), unit);
    EXPECT_GE(largest, 4 * unit);
    EXPECT_LT(largest, 8 * unit);
    EXPECT_EQ(offsets[group], 0);
    for (size_t i = group * 32; i < group * 32 + 32; ++i) {
      const float value = weights[i] / unit;
      float nearest = 0;
      for (const float code : {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f})
        for (const float sign : {-1.0f, 1.0f})
          if (std::abs(sign * code - value) < std::abs(nearest - value)) nearest = sign * code;
      EXPECT_NEAR(std::abs(codes[i] / 2.0f - value), std::abs(nearest - value), 1e-5) << i;
    }
  }
}

// A scale is a number of e4m3 times 2^-11, a twelfth of the group's largest weight but for its
// rounding, and each weight becomes the nearest code: one of e2m1's values, doubled.
TEST(RoundedPreset, Nvfp4RoundsWeightsInGroupsOfSixteen) {
  const auto rounded = OpenWeights(FindModel("preset:tiny:nvfp4").value()).value();
  const auto plain = OpenWeights(FindModel("preset:tiny").value()).value();
  const QuantisedTensor* tensor = rounded->Quantised(kGate);
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->group(), 16u);
  EXPECT_EQ(tensor->format(), "NVFP4 (rounded here)");
  EXPECT_EQ(rounded->Quantised("lm_head.weight"), nullptr);
  const TensorInfo info = plain->Find(kGate).value();
  std::vector<std::byte> scratch;
  std::vector<float> weights(tensor->columns()), scales(tensor->groups()), offsets(scales.size());
  std::vector<int8_t> codes(weights.size());
  kernels::Convert(reinterpret_cast<std::byte*>(weights.data()), kernels::Dtype::kF32,
                   plain->Rows(info, 3, 1, scratch), info.dtype, weights.size());
  tensor->Read(3, 1, codes.data(), scales.data(), offsets.data());
  for (size_t group = 0; group < scales.size(); ++group) {
    const float stored = scales[group] * 0x1p11f;
    EXPECT_EQ(kernels::ToFloat(kernels::ToE4m3(stored)), stored);
    EXPECT_EQ(offsets[group], 0);
    float largest = 0;
    for (size_t i = group * 16; i < group * 16 + 16; ++i) {
      largest = std::max(largest, std::abs(weights[i]));
      const float value = weights[i] / scales[group];
      for (const int doubled : {0, 1, 2, 3, 4, 6, 8, 12})
        for (const int sign : {-1, 1})
          EXPECT_LE(std::abs(static_cast<float>(codes[i]) - value),
                    std::abs(static_cast<float>(sign * doubled) - value) + 1e-5f);
    }
    EXPECT_NEAR(scales[group], largest / 12, largest / 12 / 16);
  }
}

TEST(RoundedPreset, Mxfp4IsRefusedForAModelWithoutExperts) {
  const auto found = FindModel("preset:tiny:mxfp4");
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().message,
              HasSubstr("'tiny' has none; use w8a8, awq, gptq, fp8 or nvfp4"));
}

TEST(RoundedPreset, UnknownSchemesAreNamedWithThoseThatThereAre) {
  const auto found = FindModel("preset:tiny:nf4");
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().message, HasSubstr("'nf4' is unknown, want w8a8, awq, gptq"));
}

}  // namespace
}  // namespace pinion
