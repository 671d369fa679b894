#include <gtest/gtest.h>

#include <cmath>

#include "harness/load/arrivals.h"
#include "harness/load/lengths.h"
#include "harness/stats/estimate.h"

namespace pinion::harness {
namespace {

std::vector<double> Gaps(const ArrivalPlan& plan, size_t count) {
  const std::vector<double> times = ArrivalSeconds(plan, count, 7);
  std::vector<double> gaps;
  for (size_t i = 1; i < times.size(); ++i) gaps.push_back(times[i] - times[i - 1]);
  return gaps;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double CoefficientOfVariation(const std::vector<double>& values) {
  const double mean = Mean(values);
  double squares = 0;
  for (double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size())) / mean;
}

constexpr size_t kMany = 20'000;  // the mean's standard error is 0.7 % of it for a Poisson process

TEST(Arrivals, PoissonGapsHaveTheRatesMeanAndAVariationOfOne) {
  const std::vector<double> gaps = Gaps({0.05, 1, {}}, kMany);
  EXPECT_NEAR(Mean(gaps), 20, 20 * 0.03);
  EXPECT_NEAR(CoefficientOfVariation(gaps), 1, 0.05);
}

TEST(Arrivals, GammaGapsVaryAsTheirShapeSays) {
  for (double shape : {0.25, 4.0}) {
    const std::vector<double> gaps = Gaps({10, shape, {}}, kMany);
    EXPECT_NEAR(Mean(gaps), 0.1, 0.1 * 0.08) << shape;
    EXPECT_NEAR(CoefficientOfVariation(gaps), 1 / std::sqrt(shape), 0.1 / std::sqrt(shape));
  }
}

TEST(Arrivals, InfiniteBurstinessIsEven) {
  EXPECT_EQ(ArrivalSeconds({4, HUGE_VAL, {}}, 3, 1), (std::vector<double>{0, 0.25, 0.5}));
}

TEST(Arrivals, SameSeedStretchesWithTheRate) {
  const auto slow = ArrivalSeconds({1, 1, {}}, 50, 3), fast = ArrivalSeconds({2, 1, {}}, 50, 3);
  for (size_t i = 0; i < slow.size(); ++i) EXPECT_DOUBLE_EQ(slow[i], 2 * fast[i]);
  EXPECT_NE(slow, ArrivalSeconds({1, 1, {}}, 50, 4));
}

TEST(Arrivals, RampsGoFromTheFirstRateToTheLast) {
  const std::vector<double> linear = Gaps({1, HUGE_VAL, Ramp{false, 1, 3}}, 3);
  EXPECT_DOUBLE_EQ(linear[0], 0.5);  // at half of the way: 2 requests/s
  EXPECT_DOUBLE_EQ(linear[1], 1.0 / 3);
  EXPECT_DOUBLE_EQ(Gaps({1, HUGE_VAL, Ramp{true, 1, 16}}, 3)[0], 0.25);  // sqrt(16)
}

TEST(Arrivals, RefusesInvalidRates) {
  for (double rate : {0.0, -1.0, std::nan(""), 1e9})
    EXPECT_FALSE(Validate(ArrivalPlan{rate, 1, {}})) << rate;
  EXPECT_FALSE(Validate(ArrivalPlan{1, 0, {}}));
  EXPECT_FALSE(Validate(ArrivalPlan{1, 1, Ramp{true, 0, 1}}));
  EXPECT_TRUE(Validate(ArrivalPlan{0.05, 1, {}}));
}

TEST(Lengths, LogNormalHasItsMedian) {
  std::mt19937_64 random(5);
  const Lengths lengths = *ParseLengths("lognormal:200,0.5", "--prompt-len");
  std::vector<double> drawn;
  for (size_t i = 0; i < kMany; ++i) drawn.push_back(lengths.Draw(random));
  EXPECT_NEAR(Median(drawn), 200, 4);
  // The 84th percentile of a normal distribution lies one sigma above its median.
  EXPECT_NEAR(Quantile(drawn, 0.8413), 200 * std::exp(0.5), 12);
}

TEST(Lengths, UniformReachesBothEnds) {
  std::mt19937_64 random(5);
  const Lengths lengths = *ParseLengths("uniform:3,5", "--output-len");
  std::vector<int> seen(7, 0);
  for (int i = 0; i < 300; ++i) ++seen[static_cast<size_t>(lengths.Draw(random))];
  EXPECT_EQ(seen[2] + seen[6], 0);
  for (size_t tokens : {3, 4, 5}) EXPECT_GT(seen[tokens], 60);
}

TEST(Lengths, ErrorsListTheForms) {
  for (const char* text : {"", "0", "-3", "2.5", "lognormal:200", "lognormal:0,1", "uniform:9,3",
                           "normal:3,1", "lognormal:200,0.5,1", "99999999"}) {
    const auto lengths = ParseLengths(text, "--prompt-len");
    ASSERT_FALSE(lengths) << text;
    EXPECT_EQ(lengths.error().code, ErrorCode::kUsage);
    EXPECT_NE(lengths.error().message.find("lognormal:256,0.5"), std::string::npos);
  }
  for (const char* text : {"256", "lognormal:256,0.5", "uniform:64,512"})
    EXPECT_EQ(ParseLengths(text, "x")->Text(), text);
}

}  // namespace
}  // namespace pinion::harness
