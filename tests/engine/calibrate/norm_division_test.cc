#include "engine/calibrate/norm_division.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "kernels/kernels.h"

namespace pinion {
namespace {

using kernels::Dtype;
using ::testing::ElementsAre;

// Divides and returns the norm's weights as a model would read them.
std::vector<float> Divided(Dtype dtype, float offset, const std::vector<float>& values,
                           std::vector<float>& factors) {
  const std::vector<std::byte> stored = DivideNorm(dtype, offset, values, factors);
  std::vector<float> weights(values.size());
  kernels::Convert(reinterpret_cast<std::byte*>(weights.data()), Dtype::kF32, stored.data(), dtype,
                   weights.size());
  for (float& weight : weights) weight += offset;
  return weights;
}

TEST(NormDivision, FactorsFollowFromTheStoredQuotients) {
  std::vector<float> factors = {3, 0.3f, 1, 5};
  // 1 / 3 and 7 / 0.3 in bfloat16, of 8 bits
  EXPECT_THAT(Divided(Dtype::kBf16, 0, {1, 7, -2.5f, 0}, factors),
              ElementsAre(171.0f / 512, 23.375f, -2.5f, 0));
  EXPECT_THAT(factors, ElementsAre(512.0f / 171, 7 / 23.375f, 1, 1));
}

// Weights of 1, 1, 2, 0 and 1, less 1. From 512 on, a bfloat16 has no quotient of 1 but 0.
TEST(NormDivision, ChannelsOfGemmaOutliveLargeFactors) {
  std::vector<float> factors = {511, 512, 1024, 1000, 1e6f};
  constexpr float kLeast = 1.0f / 256;
  EXPECT_THAT(Divided(Dtype::kBf16, 1, {0, 0, 1, -1, 0}, factors),
              ElementsAre(kLeast, kLeast, kLeast, 0, kLeast));
  EXPECT_THAT(factors, ElementsAre(256, 256, 512, 1, 256));
}

TEST(NormDivision, NoQuotientIsInfinite) {
  std::vector<float> factors = {1e-4f};
  EXPECT_THAT(Divided(Dtype::kF16, 0, {8}, factors), ElementsAre(40'000));
  EXPECT_THAT(factors, ElementsAre(2e-4f));
}

TEST(NormDivision, EndsWithBrokenWeights) {
  std::vector<float> factors = {1e4f, 1e-4f};
  const std::vector<float> weights = Divided(
      Dtype::kBf16, 0,
      {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}, factors);
  EXPECT_FALSE(weights[0] <= 0 || weights[0] > 0);
}

}  // namespace
}  // namespace pinion
