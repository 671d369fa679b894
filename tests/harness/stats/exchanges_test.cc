// Comparisons of two by rounds of two trials: what they rest on, and what they withstand.

#include "harness/stats/exchanges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "harness/stats/rules.h"

namespace pinion::harness {
namespace {

// Rounds in random order; `noise` gives the log speed of the n-th trial.
template <typename Noise>
std::vector<ScoredPair> Measured(int rounds, double lead, uint64_t seed, Noise noise) {
  std::mt19937_64 random(seed);
  std::vector<ScoredPair> pairs;
  for (int round = 0; round < rounds; ++round) {
    const double early = noise(2 * round), late = noise(2 * round + 1);
    if (random() % 2)
      pairs.push_back({late, early + lead, true});
    else
      pairs.push_back({early, late + lead, false});
  }
  return pairs;
}

bool TellsApart(const PairComparison& found) { return found.interval && !found.interval->Holds(0); }

TEST(ComparePairs, WithoutNoiseTheLeadIsExact) {
  const PairComparison found =
      ComparePairs(Measured(8, -0.05, 1, [](int) { return 3.0; }), kPairLevel);
  EXPECT_EQ(found.rounds, 8u);
  EXPECT_NEAR(found.log_ratio, -0.05, 1e-12);
  ASSERT_TRUE(found.interval);
  EXPECT_NEAR(found.interval->low, -0.05, 1e-12);
  EXPECT_NEAR(found.interval->high, -0.05, 1e-12);
  EXPECT_EQ(found.interval->coverage, kPairLevel);
}

// All 2^n exchanges are as likely, and two of them are the most extreme.
TEST(ComparePairs, TheFewestRoundsFollowFromTheLevel) {
  EXPECT_EQ(LeastPairs(0.99), 8u);  // 2 / 2^8 = 0.8 %
  EXPECT_EQ(LeastPairs(0.95), 6u);
  for (const double level : {0.95, 0.99}) {
    const int least = static_cast<int>(LeastPairs(level));
    const auto constant = [](int) { return 0.0; };
    EXPECT_TRUE(ComparePairs(Measured(least, 1, 1, constant), level).interval);
    EXPECT_FALSE(ComparePairs(Measured(least - 1, 1, 1, constant), level).interval);
  }
  EXPECT_FALSE(ComparePairs({}, 0.99).interval);
}

// The machine's speed doubles, and halves again within the comparison: the same lead is found.
TEST(ComparePairs, DriftAndJumpsCancel) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal(0, 0.01);
  const auto drifting = [&](int n) {
    return 0.02 * n + (n > 20 && n < 33 ? 0.7 : 0) + normal(random);
  };
  const PairComparison found = ComparePairs(Measured(24, -0.05, 7, drifting), kPairLevel);
  EXPECT_NEAR(found.log_ratio, -0.05, 0.02);
  ASSERT_TRUE(TellsApart(found));
  EXPECT_LT(found.interval->high, 0);
}

TEST(ComparePairs, HowFarOffASpikeIsDoesNotMatter) {
  const auto with = [](double spike) {
    std::mt19937_64 random(5);
    std::normal_distribution<double> normal(0, 0.01);
    return ComparePairs(
        Measured(12, 0.05, 9,
                 [&](int n) { return n == 7 ? normal(random) - spike : normal(random); }),
        kPairLevel);
  };
  const PairComparison near = with(0.3), far = with(30);
  EXPECT_EQ(near.log_ratio, far.log_ratio);
  EXPECT_EQ(near.interval->low, far.interval->low);
  EXPECT_EQ(near.interval->high, far.interval->high);
}

// The sides exchanged: the same with the other sign.
TEST(ComparePairs, NeitherSideIsFavoured) {
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal(0, 0.1);
  const std::vector<ScoredPair> pairs = Measured(15, 0.02, 13, [&](int) { return normal(random); });
  std::vector<ScoredPair> exchanged;
  for (const ScoredPair& pair : pairs)
    exchanged.push_back({pair.second, pair.first, !pair.second_ran_first});
  const PairComparison one = ComparePairs(pairs, kPairLevel);
  const PairComparison other = ComparePairs(exchanged, kPairLevel);
  EXPECT_NEAR(one.log_ratio, -other.log_ratio, 1e-12);
  EXPECT_NEAR(one.interval->low, -other.interval->high, 1e-12);
  EXPECT_NEAR(one.interval->high, -other.interval->low, 1e-12);
}

// In any noise: independent, drifting, or with half of the trials disturbed. With a chance of
// 1 % each, 400 comparisons have 4 wrong ones and, but for once in ten thousand times, at most 13.
TEST(ComparePairs, EqualOnesAreToldApartInAtMostOneOfAHundred) {
  std::mt19937_64 random(17);
  std::normal_distribution<double> normal(0, 1);
  std::bernoulli_distribution half(0.5);
  double drift = 0;
  const std::vector<std::function<double(int)>> noises = {
      [&](int) { return normal(random); },
      [&](int) { return drift = 0.95 * drift + normal(random); },
      [&](int) { return half(random) ? 3 * std::abs(normal(random)) : 0.01 * normal(random); }};
  for (size_t i = 0; i < noises.size(); ++i) {
    int apart = 0, missed = 0;
    for (uint64_t seed = 0; seed < 400; ++seed) {
      const PairComparison found = ComparePairs(Measured(12, 0.3, seed, noises[i]), kPairLevel);
      missed += found.interval && !found.interval->Holds(0.3) ? 1 : 0;
      apart += TellsApart(ComparePairs(Measured(12, 0, seed, noises[i]), kPairLevel)) ? 1 : 0;
    }
    EXPECT_LE(apart, 13) << "noise " << i;
    EXPECT_LE(missed, 13) << "noise " << i;
    EXPECT_GT(apart, 0) << "noise " << i << ": a test that never errs is no test at this level";
  }
}

// Beyond the rounds whose sums are counted, the normal distribution takes over: the interval of
// four times as many rounds is half as wide.
TEST(ComparePairs, ManyRoundsNarrowTheInterval) {
  std::mt19937_64 random(19);
  std::normal_distribution<double> normal(0, 0.05);
  const auto width = [&](int rounds) {
    const auto found =
        ComparePairs(Measured(rounds, 0.05, 21, [&](int) { return normal(random); }), kPairLevel);
    return found.interval->high - found.interval->low;
  };
  const double counted = width(150), many = width(600);
  EXPECT_NEAR(many / counted, 0.5, 0.15);
}

}  // namespace
}  // namespace pinion::harness
