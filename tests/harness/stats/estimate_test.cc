#include "harness/stats/estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace pinion::harness {
namespace {

using testing::ElementsAre;

std::vector<double> OneTo(size_t n) {
  std::vector<double> values(n);
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

TEST(Estimate, MedianOfEvenCountIsTheMiddleMean) {
  EXPECT_EQ(Median(std::vector<double>{4, 1, 3, 2}), 2.5);
  EXPECT_EQ(Median(std::vector<double>{9, 1, 5}), 5);
  EXPECT_EQ(Median({}), 0);
}

TEST(Estimate, MadIgnoresOneOutlier) {
  EXPECT_EQ(MedianAbsoluteDeviation(std::vector<double>{1, 2, 3, 4, 1000}), 1);
}

TEST(Estimate, QuantileInterpolatesLikeNumPy) {
  const std::vector<double> values = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(Quantile(values, 0.9), 3.7);
  EXPECT_DOUBLE_EQ(Quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(Quantile(values, 1), 4);
}

TEST(Estimate, AnExpectedQuantileLeavesOutTheShareThatItSays) {
  const std::vector<double> values = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(ExpectedQuantile(values, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(ExpectedQuantile(values, 0.7), 3.5);
  EXPECT_DOUBLE_EQ(ExpectedQuantile(values, 0.9), 4) << "four do not reach further";
  EXPECT_DOUBLE_EQ(ExpectedQuantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(ExpectedQuantile(std::vector<double>{7}, 0.9), 7);
  EXPECT_EQ(ExpectedQuantile({}, 0.9), 0);
  EXPECT_EQ(SamplesBeyondQuantile(0.9), 9u);
  EXPECT_EQ(SamplesBeyondQuantile(0.95), 19u);
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> any(0, 1);
  double expected = 0, usual = 0;  // of a uniform distribution a quantile is its share
  constexpr int kTimes = 4000;
  for (int i = 0; i < kTimes; ++i) {
    std::vector<double> drawn(17);
    for (double& value : drawn) value = any(random);
    expected += ExpectedQuantile(drawn, 0.9) / kTimes;
    usual += Quantile(drawn, 0.9) / kTimes;
  }
  EXPECT_NEAR(expected, 0.9, 0.005);  // 4.6 standard errors, of 0.07 each
  EXPECT_LT(usual, 0.87);
}

TEST(Estimate, NoIntervalBelowSixSamples) {
  EXPECT_FALSE(MedianInterval(OneTo(5)));
  const auto interval = MedianInterval(OneTo(6));
  ASSERT_TRUE(interval);
  EXPECT_EQ(interval->low, 1);
  EXPECT_EQ(interval->high, 6);
  EXPECT_NEAR(interval->coverage, 1 - 2.0 / 64, 1e-12);
}

// Ranks from the table of the binomial at 1/2 (Conover, table A3): n = 10 -> 2 and 9, n = 20 -> 6
// and 15, n = 100 -> 40 and 61.
TEST(Estimate, IntervalTakesTheTabulatedRanks) {
  for (const auto& [n, low, high] : {std::tuple{10, 2, 9}, {20, 6, 15}, {100, 40, 61}}) {
    const auto interval = MedianInterval(OneTo(static_cast<size_t>(n)));
    ASSERT_TRUE(interval);
    EXPECT_EQ(interval->low, low) << n;
    EXPECT_EQ(interval->high, high) << n;
    EXPECT_GE(interval->coverage, 0.95) << n;
  }
}

TEST(Estimate, IntervalCoversTheMedianOfASkewedDistribution) {
  std::mt19937 random(7);
  std::exponential_distribution<double> skewed(1);
  int covered = 0;
  constexpr int kRuns = 2000;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<double> samples(9);
    for (double& sample : samples) sample = skewed(random);
    covered += MedianInterval(samples)->Holds(std::log(2.0)) ? 1 : 0;
  }
  // n = 9 covers 96.1 %; 4 standard errors of 2000 runs are 1.7 %.
  EXPECT_NEAR(covered / static_cast<double>(kRuns), 0.961, 0.017);
}

TEST(Estimate, AutocorrelationDetectsDriftAndAlternation) {
  EXPECT_GT(Lag1Autocorrelation(OneTo(40)), 0.8);
  std::vector<double> alternating;
  for (int i = 0; i < 40; ++i) alternating.push_back(i % 2);
  EXPECT_LT(Lag1Autocorrelation(alternating), -0.8);
  EXPECT_EQ(Lag1Autocorrelation(std::vector<double>(40, 3.0)), 0);
}

TEST(Estimate, PairsKeepAnOddLastSample) {
  EXPECT_THAT(AdjacentPairMedians(std::vector<double>{1, 3, 10, 20, 7}), ElementsAre(2, 15, 7));
}

TEST(Estimate, PercentilesNeedEnoughSamples) {
  EXPECT_EQ(SamplesNeededForQuantile(0.90), 44u);
  EXPECT_EQ(SamplesNeededForQuantile(0.95), 90u);
  EXPECT_EQ(SamplesNeededForQuantile(0.99), 459u);
  EXPECT_FALSE(SupportedQuantile(OneTo(43), 0.9));
  EXPECT_TRUE(SupportedQuantile(OneTo(44), 0.9));
}

}  // namespace
}  // namespace pinion::harness
