#include "harness/stats/distributions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

// Against exact values, closed forms and the tables of Abramowitz and Stegun, Handbook of
// Mathematical Functions (1964), to the digits that these give.

namespace pinion::harness {
namespace {

constexpr double kExact = 1e-12;

// The n-th row of Pascal's triangle; its sum, 2^n, fits for n <= 62.
std::vector<uint64_t> Choices(size_t n) {
  std::vector<uint64_t> row = {1};
  for (size_t i = 1; i <= n; ++i) {
    row.push_back(1);
    for (size_t k = i - 1; k > 0; --k) row[k] += row[k - 1];
  }
  return row;
}

TEST(Binomial, AtOneHalfIsPascalsTriangle) {
  for (size_t n = 1; n <= 60; ++n) {
    const std::vector<uint64_t> choices = Choices(n);
    uint64_t sum = 0;
    for (size_t k = 0; k <= n; ++k) {
      sum += choices[k];
      const double exact = std::ldexp(static_cast<double>(sum), -static_cast<int>(n));
      EXPECT_NEAR(BinomialAtMost(n, 0.5, k), exact, kExact * exact) << k << " of " << n;
    }
  }
}

TEST(Binomial, TakesAnyProbability) {
  EXPECT_NEAR(BinomialAtMost(10, 0.9, 8), 1 - std::pow(0.9, 10) - std::pow(0.9, 9), kExact);
  EXPECT_NEAR(BinomialAtMost(500, 0.01, 0), std::pow(0.99, 500), kExact);
  EXPECT_EQ(BinomialAtMost(3, 0.2, 3), 1);
  EXPECT_EQ(BinomialAtMost(3, 0, 0), 1);
  EXPECT_EQ(BinomialAtMost(3, 1, 2), 0);
}

// Thousands of samples, whose single probabilities underflow: half of all outcomes and half of the
// middle one.
TEST(Binomial, HoldsForManySamples) {
  const double middle = std::exp(std::lgamma(4001) - 2 * std::lgamma(2001) - 4000 * std::log(2.0));
  EXPECT_NEAR(BinomialAtMost(4000, 0.5, 2000), 0.5 + middle / 2, 1e-11);
}

// The ranks of an interval of the median, found among integers.
TEST(Binomial, MedianIntervalsHaveTheExactRanks) {
  for (size_t n = 1; n <= 60; ++n) {
    const std::vector<uint64_t> choices = Choices(n);
    std::vector<double> samples(n);
    std::iota(samples.begin(), samples.end(), 1.0);
    for (const double level : {0.4, 0.9, 0.95, 0.99}) {
      const auto all = std::ldexp(1.0, static_cast<int>(n));
      uint64_t below = 0;
      size_t rank = 0;
      double coverage = 0;
      for (size_t k = 1; k <= n / 2; ++k) {
        below += choices[k - 1];
        const double covered = 1 - 2 * static_cast<double>(below) / all;
        if (covered >= level) rank = k, coverage = covered;
      }
      const auto interval = MedianInterval(samples, level);
      ASSERT_EQ(interval.has_value(), rank > 0) << n;
      if (!interval) continue;
      EXPECT_EQ(interval->low, static_cast<double>(rank)) << n;
      EXPECT_EQ(interval->high, static_cast<double>(n + 1 - rank)) << n;
      EXPECT_NEAR(interval->coverage, coverage, kExact) << n;
    }
  }
}

// The end of an interval of all or none is a power: low^n = 2.5 %. The others: Clopper and
// Pearson's own limits for 8 of 10, as tabulated.
TEST(ExactShareInterval, IsClopperAndPearsons) {
  const Interval most = ExactShareInterval(8, 10);
  EXPECT_NEAR(most.low, 0.4439, 5e-5);
  EXPECT_NEAR(most.high, 0.9748, 5e-5);
  EXPECT_EQ(most.coverage, 0.95);
  for (const size_t n : {1, 10, 1000}) {
    const double end = std::pow(0.025, 1 / static_cast<double>(n));
    EXPECT_NEAR(ExactShareInterval(n, n).low, end, kExact);
    EXPECT_EQ(ExactShareInterval(n, n).high, 1);
    EXPECT_NEAR(ExactShareInterval(0, n).high, 1 - end, kExact);
    EXPECT_EQ(ExactShareInterval(0, n).low, 0);
  }
  EXPECT_EQ(ExactShareInterval(0, 0).high, 1);
}

// Its ends are the probabilities at which what was seen, or more of it, has a chance of a tail.
TEST(ExactShareInterval, HasATailBeyondEachEnd) {
  for (const auto& [good, total] : {std::pair{1, 7}, {57, 60}, {900, 1000}}) {
    const auto k = static_cast<size_t>(good), n = static_cast<size_t>(total);
    const Interval interval = ExactShareInterval(k, n, 0.9);
    EXPECT_NEAR(BinomialAtMost(n, interval.high, k), 0.05, kExact);
    EXPECT_NEAR(1 - BinomialAtMost(n, interval.low, k - 1), 0.05, kExact);
  }
}

// Tables 26.1 (P of 1, 2 and 3) and 26.5.
TEST(NormalQuantile, IsTabulated) {
  EXPECT_EQ(NormalQuantile(0.5), 0);
  EXPECT_NEAR(NormalQuantile(0.841344746068543), 1, 1e-14);
  EXPECT_NEAR(NormalQuantile(0.977249868051821), 2, 2e-14);
  EXPECT_NEAR(NormalQuantile(0.998650101968370), 3, 3e-13);
  EXPECT_NEAR(NormalQuantile(0.975), 1.95996, 5e-6);
  EXPECT_NEAR(NormalQuantile(0.005), -2.57583, 5e-6);
}

// Table 26.10, and the closed form of the distribution with 4 degrees of freedom.
TEST(StudentQuantile, IsTabulated) {
  for (const auto& [probability, tabulated] :
       {std::pair{0.75, 0.741}, {0.95, 2.132}, {0.975, 2.776}, {0.995, 4.604}}) {
    const double t = StudentQuantile(4, probability);
    EXPECT_NEAR(t, tabulated, 5e-4);
    const double s = t / std::sqrt(4 + t * t);
    EXPECT_NEAR(0.5 + 0.75 * (s - s * s * s / 3), probability, kExact);
  }
  EXPECT_NEAR(StudentQuantile(1, 0.75), 1, kExact);  // Cauchy's
}

}  // namespace
}  // namespace pinion::harness
