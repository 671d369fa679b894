// Presets whose weights Pinion rounds itself: "preset:NAME:SCHEME".

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/checkpoint/model.h"
#include "engine/checkpoint/quantised.h"
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

TEST(RoundedPreset, UnknownSchemesAreNamedWithThoseThatThereAre) {
  const auto found = FindModel("preset:tiny:nf4");
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().message, HasSubstr("'nf4' is unknown, want w8a8, awq, gptq"));
}

}  // namespace
}  // namespace pinion
