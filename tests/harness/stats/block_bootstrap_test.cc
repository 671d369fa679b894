#include "harness/stats/block_bootstrap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace pinion::harness {
namespace {

constexpr size_t kRows = 1200;
constexpr size_t kWindow = 30;  // 40 stretches

// One sample at every row.
std::vector<WindowValue> AtEveryRow(const std::vector<double>& values) {
  std::vector<WindowValue> samples;
  for (size_t row = 0; row < values.size(); ++row) samples.push_back({row, values[row]});
  return samples;
}

double Binomial(double share, double n) { return std::sqrt(share * (1 - share) / n); }

// A coin for each of `coins` equal parts of the series.
std::vector<WindowValue> Coins(size_t coins, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<double> values;
  for (size_t coin = 0; coin < coins; ++coin)
    values.insert(values.end(), kRows / coins, random() % 4 == 0 ? 1.0 : 0.0);
  return AtEveryRow(values);
}

// Mean over several series, so that the luck of one does not matter.
double MeanRatioToBinomial(size_t coins, double n) {
  constexpr int kSeries = 20;
  double sum = 0;
  for (uint32_t seed = 0; seed < kSeries; ++seed) {
    const BlockMean mean = MeanByBlocks(Coins(coins, seed), kRows, kWindow);
    sum += mean.standard_error / Binomial(mean.mean, n);
  }
  return sum / kSeries;
}

// The factor for overlap, root of 1.5, makes it 1.22 times as large as need be, and never smaller.
TEST(BlockBootstrap, IndependentSamplesHaveAboutTheBinomialError) {
  const double ratio = MeanRatioToBinomial(kRows, kRows);
  EXPECT_GT(ratio, 1.1);
  EXPECT_LT(ratio, 1.3);
}

// 1,200 samples, and 40 coins: the error is that of 40, more than five times the binomial one.
TEST(BlockBootstrap, SamplesThatRepeatForAWindowHaveTheErrorOfTheStretches) {
  const double stretches = kRows / kWindow;
  const double ratio = MeanRatioToBinomial(kRows / kWindow, stretches);
  EXPECT_GT(ratio, 0.88);
  EXPECT_LT(ratio, 1.12);
  const BlockMean mean = MeanByBlocks(Coins(kRows / kWindow, 1), kRows, kWindow);
  EXPECT_EQ(mean.stretches, stretches);
  EXPECT_EQ(mean.n, kRows);
  const auto effect = DesignEffect(mean);
  ASSERT_TRUE(effect);
  EXPECT_LT(EffectiveSamples(mean, effect), 1.5 * stretches);
}

// Moving averages over the window, as replays are: two that begin h rows apart share L - h rows.
TEST(BlockBootstrap, OverlappingWindowsHaveTheErrorOfTheirSeries) {
  constexpr int kSeries = 300;
  std::vector<double> means;
  double errors = 0;
  std::mt19937 random(3);
  std::normal_distribution<double> normal(0, 1);
  for (int series = 0; series < kSeries; ++series) {
    std::vector<double> rows(kRows), averages(kRows, 0);
    for (double& row : rows) row = normal(random);
    for (size_t from = 0; from < kRows; ++from)
      for (size_t k = 0; k < kWindow; ++k) averages[from] += rows[(from + k) % kRows] / kWindow;
    const BlockMean mean = MeanByBlocks(AtEveryRow(averages), kRows, kWindow, 200);
    means.push_back(mean.mean);
    errors += mean.standard_error / kSeries;
  }
  double squares = 0;
  for (const double mean : means) squares += mean * mean / kSeries;
  EXPECT_NEAR(errors / std::sqrt(squares), 1, 0.15);
}

TEST(BlockBootstrap, SameSeedSameError) {
  const auto samples = Coins(40, 7);
  const auto error = [&](uint64_t seed) {
    return MeanByBlocks(samples, kRows, kWindow, 100, seed).standard_error;
  };
  EXPECT_EQ(error(1), error(1));
  EXPECT_NE(error(1), error(2));
}

// One sample a row, and only that of the last row is 1.
double ErrorOfTheLastOfTenRows(size_t block) {
  std::vector<double> values(10, 0);
  values.back() = 1;
  return MeanByBlocks(AtEveryRow(values), 10, static_cast<double>(block)).standard_error;
}

// Five of the ten starts bring the last row, so two blocks bring it Binomial(2, 1/2) times. Blocks
// that did not wrap round would bring it from one start of six.
TEST(BlockBootstrap, BlocksWrapRoundAtTheEnd) {
  EXPECT_NEAR(ErrorOfTheLastOfTenRows(5), std::sqrt(1.5 * 2 * 0.5 * 0.5) / 10, 0.004);
}

// A block of six and what is left, four: 10 samples, not 12.
TEST(BlockBootstrap, TheLastBlockIsCutToTheLengthOfTheSeries) {
  EXPECT_NEAR(ErrorOfTheLastOfTenRows(6), std::sqrt(1.5 * (0.6 * 0.4 + 0.4 * 0.6)) / 10, 0.004);
}

TEST(BlockBootstrap, NothingComesOfNoSamples) {
  const BlockMean none = MeanByBlocks({}, 10, 5);
  EXPECT_EQ(none.n, 0);
  EXPECT_EQ(ShareInterval(none.mean, EffectiveSamples(none, std::nullopt)).high, 1);
}

BlockMean Share(double mean, double standard_error) { return {1000, 8, mean, standard_error}; }

TEST(DesignEffect, IsUnknownForEventsThatHardlyEverHappen) {
  EXPECT_FALSE(DesignEffect(Share(0, 0)));
  EXPECT_FALSE(DesignEffect(Share(0.004, 0.002)));
  EXPECT_FALSE(DesignEffect(Share(0.996, 0.002)));
  EXPECT_TRUE(DesignEffect(Share(0.005, 0.002)));
}

TEST(DesignEffect, IsTheVarianceOverThatOfIndependentSamples) {
  EXPECT_NEAR(*DesignEffect(Share(0.1, 2 * Binomial(0.1, 1000))), 4, 1e-9);
  EXPECT_EQ(*DesignEffect(Share(0.1, Binomial(0.1, 1000) / 2)), 1);  // luck, not information
}

TEST(DesignEffect, LeavesAtLeastTheStretches) {
  EXPECT_DOUBLE_EQ(EffectiveSamples(Share(0.1, 0), 4), 250);
  EXPECT_EQ(EffectiveSamples(Share(0.1, 0), 900), 8);
  EXPECT_EQ(EffectiveSamples(Share(0, 0), std::nullopt), 8);
}

// Wilson's interval of 1 in 10: (0.0179, 0.4041), of 0 in 10: (0, 0.2775).
TEST(ShareInterval, IsWilsons) {
  EXPECT_NEAR(ShareInterval(0.1, 10).low, 0.0179, 1e-4);
  EXPECT_NEAR(ShareInterval(0.1, 10).high, 0.4042, 1e-4);
  EXPECT_EQ(ShareInterval(0, 10).low, 0);
  EXPECT_NEAR(ShareInterval(0, 10).high, 0.2775, 1e-4);
  EXPECT_NEAR(ShareInterval(1, 10).low, 1 - 0.2775, 1e-4);
}

TEST(MeanInterval, IsTwoStandardErrorsWide) {
  const Interval interval = MeanInterval(Share(0.5, 0.1));
  EXPECT_NEAR(interval.low, 0.304, 1e-3);
  EXPECT_NEAR(interval.high, 0.696, 1e-3);
}

}  // namespace
}  // namespace pinion::harness
