// Reductions over a row of logits, and the weights that samplers make of it.

#include <algorithm>

#include "tests/kernels/row.h"

namespace pinion::kernels::testing {
namespace {

class LogitsTest : public ::testing::TestWithParam<Isa> {
 protected:
  const Table& kernels_ = TableFor(GetParam());
};

// Terms e^(x - max) are positive: their sum errs by the factor (n + 4 + |x - max|) u, of which the
// logarithm makes an absolute error; then the logarithm and the addition round.
TEST_P(LogitsTest, LogSumExpIsWithinTheSummationBound) {
  for (size_t n : kSizes) {
    for (float offset : {0.0f, 1e4f, -1e4f}) {
      std::vector<float> values = Normal(n, 1, 5);
      for (float& v : values) v += offset;
      const Row x(values);
      const double max = *std::max_element(values.begin(), values.end());
      const double min = *std::min_element(values.begin(), values.end());
      double sum = 0;
      for (float v : values) sum += std::exp(v - max);
      const double bound = (static_cast<double>(n) + 6 + (max - min)) * kU +
                           2 * kU * (std::abs(max) + std::log(sum));
      ASSERT_NEAR(kernels_.log_sum_exp(x.data(), n), max + std::log(sum), 1.01 * bound) << n;
    }
  }
}

TEST_P(LogitsTest, LogSumExpOfInfinities) {
  for (size_t n : {1, 5, 16, 40}) {
    std::vector<float> values(n, -INFINITY);
    EXPECT_EQ(kernels_.log_sum_exp(Row(values).data(), n), -INFINITY);
    values[n / 2] = 3;  // e^-infinity adds nothing
    EXPECT_EQ(kernels_.log_sum_exp(Row(values).data(), n), 3);
    values[n - 1] = INFINITY;
    EXPECT_EQ(kernels_.log_sum_exp(Row(values).data(), n), INFINITY);
  }
}

// Each weight is off by its exponential's 4 half-ulps and by the roundings of its argument a, |a|
// of them twice; the sum by one more an addition.
TEST_P(LogitsTest, ExpWeightsAreTheSoftmaxBeforeItsDivision) {
  for (size_t n : kSizes) {
    std::vector<float> values = Normal(n, 3, 6);
    const float max = *std::max_element(values.begin(), values.end());
    for (float scale : {0.5f, 1.25f}) {
      for (float least : {0.0f, 0.25f}) {
        Row x(values);
        const double sum = kernels_.exp_weights(x.data(), n, max, scale, least);
        double total = 0;
        for (size_t i = 0; i < n; ++i) {
          const double argument = (static_cast<double>(values[i]) - max) * scale;
          const double want = std::exp(argument), bound = want * kU * (6 + 3 * std::abs(argument));
          const bool kept = x.data()[i] > 0;
          if (std::abs(want - least) > bound) {
            ASSERT_EQ(kept, want > least) << n << " " << i;
          }
          if (kept) {
            ASSERT_NEAR(x.data()[i], want, bound) << n << " " << i;
          }
          total += x.data()[i];
        }
        ASSERT_NEAR(sum, total, total * kU * static_cast<double>(n + 1)) << n;
      }
    }
  }
}

TEST_P(LogitsTest, ExpWeightsOfNotANumberAreZero) {
  for (size_t n : {2, 5, 16, 40}) {
    std::vector<float> values(n, -INFINITY);
    values[0] = 7;
    values[n - 1] = NAN;
    Row x(values);
    EXPECT_EQ(kernels_.exp_weights(x.data(), n, 7, 1, 0), 1);
    EXPECT_EQ(x.data()[0], 1);
    for (size_t i = 1; i < n; ++i) EXPECT_EQ(x.data()[i], 0) << n << " " << i;
  }
}

TEST_P(LogitsTest, SumAtLeastLeavesOutTheSmaller) {
  for (size_t n : kSizes) {
    std::vector<float> values(n);  // small whole numbers: every sum is exact
    for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i % 7);
    float want = 0;
    for (float v : values) want += v >= 3 ? v : 0;
    EXPECT_EQ(kernels_.sum_at_least(Row(values).data(), n, 3), want) << n;
  }
}

TEST_P(LogitsTest, ArgMaxTakesTheLowestOfEquals) {
  for (size_t n : kSizes) {
    for (size_t first = 0; first < n; first += 1 + n / 9) {
      std::vector<float> values(n, -2);
      values[first] = 1;
      values[n - 1] = 1;
      EXPECT_EQ(kernels_.argmax(Row(values).data(), n), first);
    }
    EXPECT_EQ(kernels_.argmax(Row(std::vector<float>(n, -INFINITY)).data(), n), 0u);
    EXPECT_EQ(kernels_.argmax(Row(std::vector<float>(n, 0)).data(), n), 0u);
  }
}

TEST_P(LogitsTest, MaxIsTheLargestElement) {
  for (size_t n : kSizes) {
    for (size_t at = 0; at < n; at += 1 + n / 9) {
      for (float value : {-2.0f, INFINITY}) {
        std::vector<float> values(n, -7);
        values[n / 2] = -INFINITY;
        values[at] = value;
        EXPECT_EQ(kernels_.max(Row(values).data(), n), value) << n << " " << at;
      }
    }
    EXPECT_EQ(kernels_.max(Row(std::vector<float>(n, -INFINITY)).data(), n), -INFINITY);
  }
}

// Reductions report a NaN at any place, whatever the other logits are.
TEST_P(LogitsTest, ReductionsTellOfNan) {
  for (size_t n : kSizes) {
    for (float others : {-1.0f, -INFINITY, INFINITY, NAN}) {
      for (size_t at = 0; at < n; at += 1 + n / 67) {
        std::vector<float> values(n, others);
        values[at] = NAN;
        const Row x(values);
        EXPECT_TRUE(std::isnan(kernels_.max(x.data(), n))) << n << " " << at << " " << others;
        EXPECT_EQ(kernels_.argmax(x.data(), n), n) << at << " " << others;
        EXPECT_TRUE(std::isnan(kernels_.log_sum_exp(x.data(), n))) << n << " " << at;
      }
    }
  }
}

TEST_P(LogitsTest, ArgMaxFindsTheLargestOfManyLogits) {
  const std::vector<float> values = Normal(128256, 8, 4);
  const auto want = std::max_element(values.begin(), values.end()) - values.begin();
  EXPECT_EQ(kernels_.argmax(Row(values).data(), values.size()), static_cast<size_t>(want));
}

INSTANTIATE_TEST_SUITE_P(AllIsas, LogitsTest, ::testing::ValuesIn(UsableIsas()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace pinion::kernels::testing
