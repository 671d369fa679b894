#include <algorithm>

#include "tests/kernels/testing.h"

namespace pinion::kernels::testing {
namespace {

// Both sides of every vector edge, and a real width.
constexpr size_t kSizes[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65, 100, 2048, 2055};
constexpr Dtype kDstTypes[] = {Dtype::kF32, Dtype::kBf16};
constexpr double kU = 0x1p-24;

// Values that end at an unmapped page.
struct Row : Guarded<float> {
  explicit Row(const std::vector<float>& values) : Guarded(values.size()) {
    std::copy(values.begin(), values.end(), data());
  }
};

class RowwiseTest : public ::testing::TestWithParam<Isa> {
 protected:
  const Table& kernels_ = TableFor(GetParam());

  // Compares n stored values with exact ones; rounding to bfloat16 adds its own share.
  static void ExpectNear(const Guarded<std::byte>& dst, Dtype type, size_t n,
                         const std::vector<double>& exact, const std::vector<double>& bound) {
    for (size_t i = 0; i < n; ++i) {
      const double rounding = type == Dtype::kBf16 ? UnitRoundoff(type) * std::abs(exact[i]) : 0;
      ASSERT_NEAR(Get(dst.data(), type, i), exact[i], 1.01 * bound[i] + 1.01 * rounding + 1e-38)
          << "n " << n << ", element " << i << ", " << Name(type);
    }
  }
};

// mean(x^2) has no cancellation: any order of n additions errs by the factor 1 + (n + 1) u, the
// root halves it, and four more operations follow.
TEST_P(RowwiseTest, RmsNormIsWithinTheSummationBound) {
  for (size_t n : kSizes) {
    const Row x(Normal(n, 1, 3)), weight(Normal(n, 2));
    double squares = 0;
    for (size_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-5f);
    std::vector<double> exact(n), bound(n);
    for (size_t i = 0; i < n; ++i) {
      exact[i] = x[i] * scale * weight[i];
      bound[i] = (static_cast<double>(n) / 2 + 6) * kU * std::abs(exact[i]);
    }
    for (Dtype type : kDstTypes) {
      Guarded<std::byte> dst(n * SizeOf(type));
      kernels_.rms_norm(dst.data(), type, x.data(), weight.data(), n, 1e-5f);
      ExpectNear(dst, type, n, exact, bound);
    }
  }
}

// The mean errs by m = (n + 1) u mean|x|; so does every x - mean (plus its rounding), which the
// factor (n / 2 + 6) u of the norm multiplies; the variance sees m only squared, but bound it by m.
TEST_P(RowwiseTest, LayerNormIsWithinTheSummationBound) {
  for (size_t n : kSizes) {
    const Row x(Normal(n, 1, 3)), weight(Normal(n, 2)), bias(Normal(n, 3));
    double sum = 0, magnitude = 0, squares = 0;
    const auto count = static_cast<double>(n);
    for (float v : std::vector<float>(x.data(), x.data() + n)) sum += v, magnitude += std::abs(v);
    for (size_t i = 0; i < n; ++i) squares += std::pow(x[i] - sum / count, 2);
    const double scale = 1 / std::sqrt(squares / count + 1e-5f);
    const double mean_error = (count + 1) * kU * magnitude / count;
    std::vector<double> exact(n), bound(n);
    for (size_t i = 0; i < n; ++i) {
      const double normal = (x[i] - sum / count) * scale;
      exact[i] = normal * weight[i] + bias[i];
      const double relative = (count / 2 + 6) * kU + mean_error * scale * mean_error * scale;
      const double shift = (mean_error + kU * std::abs(x[i])) * scale * (1 + std::abs(normal));
      bound[i] = (relative * std::abs(normal) + shift) * std::abs(weight[i]) +
                 2 * kU * std::abs(exact[i]) + kU * std::abs(bias[i]);
    }
    for (Dtype type : kDstTypes) {
      Guarded<std::byte> dst(n * SizeOf(type));
      kernels_.layer_norm(dst.data(), type, x.data(), weight.data(), bias.data(), n, 1e-5f);
      ExpectNear(dst, type, n, exact, bound);
    }
  }
}

// Two products and a sum: three roundings at most.
TEST_P(RowwiseTest, RotaryTurnsHalvesAgainstEachOther) {
  for (size_t half : {4, 8, 12, 16, 20, 32, 64, 128}) {
    const std::vector<float> x = Normal(2 * half, 1), angle = Normal(half, 2, 10);
    std::vector<float> cos(half), sin(half);
    for (size_t i = 0; i < half; ++i) cos[i] = std::cos(angle[i]), sin[i] = std::sin(angle[i]);
    Row row(x);
    kernels_.rotary(row.data(), Row(cos).data(), Row(sin).data(), half);
    for (size_t i = 0; i < half; ++i) {
      const double a = x[i], b = x[i + half], c = cos[i], s = sin[i];
      const double bound = 2.02 * kU * (std::abs(a) + std::abs(b));
      ASSERT_NEAR(row[i], a * c - b * s, bound);
      ASSERT_NEAR(row[i + half], b * c + a * s, bound);
    }
  }
}

// e^-g errs by 4 u (2 ulp); then one addition, one division, one multiplication. Below e^-87.33 the
// vector exp flushes to zero, which moves the sum 1 + e^-g by less than u.
TEST_P(RowwiseTest, SiluMulIsWithinTheExponentialsBound) {
  for (size_t n : kSizes) {
    const Row gate(Normal(n, 1, 20)), up(Normal(n, 2));
    std::vector<double> exact(n), bound(n);
    for (size_t i = 0; i < n; ++i) {
      exact[i] = gate[i] / (1 + std::exp(-static_cast<double>(gate[i]))) * up[i];
      bound[i] = 8 * kU * std::abs(exact[i]);
    }
    for (Dtype type : kDstTypes) {
      Guarded<std::byte> dst(n * SizeOf(type));
      kernels_.silu_mul(dst.data(), type, gate.data(), up.data(), n);
      ExpectNear(dst, type, n, exact, bound);
    }
  }
}

// silu(g) * 1 for g from far below to far above exp's range: no NaN, no infinity, the right limits.
TEST_P(RowwiseTest, SiluMulSurvivesExtremeGates) {
  const Row gate({-1e30f, -1000, -89, -88, -87.4f, 0, 87.4f, 88.8f, 1000, 1e30f});
  const Row up(std::vector<float>(10, 1));
  Guarded<float> dst(10);
  kernels_.silu_mul(dst.data(), Dtype::kF32, gate.data(), up.data(), 10);
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(dst[i], 0, 1e-7 + 1e-36 * -gate[i]) << gate[i];
  for (size_t i = 5; i < 10; ++i) EXPECT_FLOAT_EQ(dst[i], gate[i]);
}

// No rounding but the destination's own, so bit for bit as the scalar table: special values, ties.
TEST_P(RowwiseTest, StoreReluAndAddAreExact) {
  const Table& scalar = TableFor(Isa::kScalar);
  for (size_t n : kSizes) {
    std::vector<float> values = Normal(n, 1, 100), others = Normal(n, 2, 1e-3f);
    const float special[] = {0.0f,   -0.0f,       INFINITY,    -INFINITY,
                             1e-41f, 1.00390625f, 1.01171875f, 3.4e38f};
    for (size_t i = 0; i < n; i += 3) values[i] = special[i / 3 % std::size(special)];
    const Row x(values), y(others);
    for (Dtype type : kDstTypes) {
      Guarded<std::byte> got(n * SizeOf(type)), want(n * SizeOf(type));
      kernels_.store(got.data(), type, x.data(), n);
      scalar.store(want.data(), type, x.data(), n);
      ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size()), 0) << n;
      kernels_.relu(got.data(), type, x.data(), n);
      scalar.relu(want.data(), type, x.data(), n);
      ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size()), 0) << n;
    }
    Row got(others), want(others);
    kernels_.add(got.data(), x.data(), n);
    scalar.add(want.data(), x.data(), n);
    ASSERT_EQ(std::memcmp(got.data(), want.data(), n * 4), 0) << n;
  }
}

TEST_P(RowwiseTest, StoreKeepsNan) {
  const Row x(std::vector<float>(19, NAN));
  Guarded<std::byte> dst(19 * 2);
  kernels_.store(dst.data(), Dtype::kBf16, x.data(), 19);
  for (size_t i = 0; i < 19; ++i) EXPECT_TRUE(std::isnan(Get(dst.data(), Dtype::kBf16, i)));
}

// Terms e^(x - max) are positive: their sum errs by the factor (n + 4 + |x - max|) u, of which the
// logarithm makes an absolute error; then the logarithm and the addition round.
TEST_P(RowwiseTest, LogSumExpIsWithinTheSummationBound) {
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

TEST_P(RowwiseTest, LogSumExpOfInfinities) {
  for (size_t n : {1, 5, 16, 40}) {
    std::vector<float> values(n, -INFINITY);
    EXPECT_EQ(kernels_.log_sum_exp(Row(values).data(), n), -INFINITY);
    values[n / 2] = 3;  // e^-infinity adds nothing
    EXPECT_EQ(kernels_.log_sum_exp(Row(values).data(), n), 3);
    values[n - 1] = INFINITY;
    EXPECT_EQ(kernels_.log_sum_exp(Row(values).data(), n), INFINITY);
  }
}

TEST_P(RowwiseTest, ArgMaxTakesTheLowestOfEquals) {
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

TEST_P(RowwiseTest, ArgMaxNeverTakesNan) {
  for (size_t n : kSizes) {
    std::vector<float> values(n, NAN);
    EXPECT_EQ(kernels_.argmax(Row(values).data(), n), 0u);  // nothing to take
    for (size_t at : {size_t{0}, n / 2, n - 1}) {
      for (float value : {-INFINITY, -1.0f, INFINITY}) {
        values.assign(n, NAN);
        values[at] = value;
        EXPECT_EQ(kernels_.argmax(Row(values).data(), n), at);
      }
    }
  }
}

TEST_P(RowwiseTest, ArgMaxFindsTheLargestOfManyLogits) {
  const std::vector<float> values = Normal(128256, 8, 4);
  const auto want = std::max_element(values.begin(), values.end()) - values.begin();
  EXPECT_EQ(kernels_.argmax(Row(values).data(), values.size()), static_cast<size_t>(want));
}

INSTANTIATE_TEST_SUITE_P(AllIsas, RowwiseTest, ::testing::ValuesIn(UsableIsas()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace pinion::kernels::testing
