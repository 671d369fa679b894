#include "harness/stats/holm.h"

#include <gtest/gtest.h>

#include <random>

#include "harness/stats/estimate.h"
#include "harness/stats/rules.h"

namespace pinion::harness {
namespace {

// The example of Holm's paper's kind, by hand: 0.01 <= 0.05/4, 0.013 <= 0.05/3, 0.03 > 0.05/2.
TEST(Holm, HoldsEachToTheRestOfTheFamilysLevel) {
  const std::vector<Corrected> found = Holm(std::vector{0.03, 0.01, 0.04, 0.013}, 0.05);
  const bool rejected[] = {false, true, false, true};
  const double alphas[] = {0.05 / 2, 0.05 / 4, 0.05 / 2, 0.05 / 3};
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].rejected, rejected[i]) << i;
    EXPECT_DOUBLE_EQ(found[i].level, 1 - alphas[i]) << i;
  }
}

TEST(Holm, OneTestIsHeldToTheFamilysLevelAndNoneGivesNothing) {
  EXPECT_TRUE(Holm(std::vector{0.05}, 0.05)[0].rejected);
  EXPECT_FALSE(Holm(std::vector{0.051}, 0.05)[0].rejected);
  EXPECT_TRUE(Holm({}, 0.05).empty());
}

// One that is refused ends the procedure, even if a later one would pass its own level.
TEST(Holm, StopsAtTheFirstThatIsNotRejected) {
  const std::vector<Corrected> found = Holm(std::vector{0.026, 0.03}, 0.05);
  EXPECT_FALSE(found[0].rejected);
  EXPECT_FALSE(found[1].rejected);
  EXPECT_DOUBLE_EQ(found[1].level, 0.975);
}

TEST(SignTest, AgreesWithTheIntervalFromOrderStatistics) {
  std::mt19937 random(5);
  std::normal_distribution<double> noise(0.4, 1);
  for (size_t n = 6; n < 40; ++n) {
    std::vector<double> samples(n);
    for (double& one : samples) one = noise(random);
    const double p = SignTest(samples);
    const auto excludes = [&](double level) {
      const auto interval = MedianInterval(samples, level);
      return interval && !interval->Holds(0);
    };
    EXPECT_TRUE(p >= 1 || excludes(1 - p)) << n;
    EXPECT_FALSE(excludes(1 - p * 0.999)) << n;
  }
}

TEST(SignTest, ZerosCountAgainstADifference) {
  EXPECT_DOUBLE_EQ(SignTest(std::vector{1.0, 1.0, 1.0, 1.0}), 2.0 / 16);
  EXPECT_DOUBLE_EQ(SignTest(std::vector{1.0, 1.0, 0.0, 1.0}), 2.0 * 5 / 16);
  EXPECT_EQ(SignTest({}), 1);
}

TEST(RoundsFor, AreTheFewestThatReachTheLevel) {
  EXPECT_EQ(LeastRoundsFor(1), kMinSamples);
  EXPECT_EQ(LeastRoundsFor(1), 6u);   // 2 / 2^6 = 0.0313 <= 0.032 < 2 / 2^5
  EXPECT_EQ(LeastRoundsFor(6), 9u);   // 2 / 2^9 = 0.0039 <= 0.032 / 6 = 0.0053 < 2 / 2^8
  EXPECT_EQ(LeastRoundsFor(9), 10u);  // 0.0020 <= 0.0036 < 0.0039
  EXPECT_EQ(RoundsFor(1), 10u);       // 2 * 11 / 2^10 = 0.021 <= 0.032 < 2 * 10 / 2^9
  EXPECT_EQ(RoundsFor(9), 13u);       // 2 * 14 / 2^13 = 0.0034 <= 0.0036 < 2 * 13 / 2^12
}

}  // namespace
}  // namespace pinion::harness
