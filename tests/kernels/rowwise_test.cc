#include <algorithm>

#include "tests/kernels/row.h"

namespace pinion::kernels::testing {
namespace {

constexpr Dtype kDstTypes[] = {Dtype::kF32, Dtype::kBf16};

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
    // Without a bias: that of zeros.
    const std::vector<float> zero(n);
    Row plain(zero), zeroed(zero), zeros(zero);
    kernels_.layer_norm(plain.data(), Dtype::kF32, x.data(), weight.data(), nullptr, n, 1e-5f);
    kernels_.layer_norm(zeroed.data(), Dtype::kF32, x.data(), weight.data(), zeros.data(), n,
                        1e-5f);
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(plain[i], zeroed[i]);
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

TEST_P(RowwiseTest, RotaryPairsTurnsNeighboursAgainstEachOther) {
  for (size_t half : {4, 8, 12, 16, 20, 32, 64, 128}) {
    const std::vector<float> x = Normal(2 * half, 1), angle = Normal(half, 2, 10);
    std::vector<float> cos(half), sin(half);
    for (size_t i = 0; i < half; ++i) cos[i] = std::cos(angle[i]), sin[i] = std::sin(angle[i]);
    Row row(x);
    kernels_.rotary_pairs(row.data(), Row(cos).data(), Row(sin).data(), half);
    for (size_t i = 0; i < half; ++i) {
      const double a = x[2 * i], b = x[2 * i + 1], c = cos[i], s = sin[i];
      const double bound = 2.02 * kU * (std::abs(a) + std::abs(b));
      ASSERT_NEAR(row[2 * i], a * c - b * s, bound);
      ASSERT_NEAR(row[2 * i + 1], b * c + a * s, bound);
    }
  }
}

// The activation in double and what its float32 form may err by.
struct Exact {
  double value, bound;
};
Exact ExactActivation(Activation activation, double x) {
  const double sigmoid = 1 / (1 + std::exp(-x));
  switch (activation) {
    // e^-x errs by 4 u (2 ulp); then an addition and a division. Below e^-87.33 the vector exp
    // flushes to zero, which moves the sum 1 + e^-x by less than u.
    case Activation::kSilu:
      return {x * sigmoid, 7 * kU * std::abs(x * sigmoid)};
    // The exponent errs by 5 u of itself, which e^ makes a relative error of as much; it matters if
    // the sigmoid is not 1.
    case Activation::kGeluTanh: {
      const double u = 2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
      const double s = 1 / (1 + std::exp(-u));
      return {x * s, (8 + 5 * std::abs(u) * (1 - s)) * kU * std::abs(x * s) + 1e-37};
    }
    // 1.5e-7 is the formula's; its terms, at most 1.4 each, are rounded a dozen times.
    case Activation::kGeluErf:
      return {0.5 * x * std::erfc(-x / std::sqrt(2.0)),
              (0.75e-7 + 12 * kU) * std::abs(x) + kU * std::abs(x)};
    case Activation::kRelu:
      return {std::max(x, 0.0), 0};
    case Activation::kSigmoid:
      return {sigmoid, 7 * kU * sigmoid};
    case Activation::kRelu2:
      return {x > 0 ? x * x : 0, x > 0 ? kU * x * x : 0};
  }
  return {};
}

constexpr Activation kActivations[] = {Activation::kSilu,    Activation::kGeluTanh,
                                       Activation::kGeluErf, Activation::kRelu,
                                       Activation::kSigmoid, Activation::kRelu2};

TEST_P(RowwiseTest, ActivationsAreWithinTheExponentialsBound) {
  for (size_t n : kSizes) {
    const Row gate(Normal(n, 1, 4)), up(Normal(n, 2));
    for (Activation activation : kActivations) {
      std::vector<double> plain(n), plain_bound(n), gated(n), gated_bound(n);
      for (size_t i = 0; i < n; ++i) {
        const auto [value, bound] = ExactActivation(activation, gate[i]);
        plain[i] = value, plain_bound[i] = bound;
        gated[i] = value * up[i];
        gated_bound[i] = bound * std::abs(up[i]) + kU * std::abs(gated[i]);
      }
      for (Dtype type : kDstTypes) {
        Guarded<std::byte> dst(n * SizeOf(type));
        kernels_.activate(dst.data(), type, activation, gate.data(), n);
        ExpectNear(dst, type, n, plain, plain_bound);
        kernels_.activate_gated(dst.data(), type, activation, gate.data(), up.data(), n);
        ExpectNear(dst, type, n, gated, gated_bound);
      }
    }
  }
}

// Rows of a tile, with and without biases: each element as a call for it alone gives, within what
// a compiler may contract; and nothing beside the rows is written.
TEST_P(RowwiseTest, ActivatedRowsAreThoseOfSingleCalls) {
  constexpr size_t kRows = 5, kGap = 7;
  for (size_t n : kSizes) {
    const size_t stride = n + kGap;
    const Row x(Normal(kRows * stride, 1, 4)), up(Normal(kRows * stride, 2));
    const Row bias(Normal(n, 3)), up_bias(Normal(n, 4));
    for (const Activation activation : kActivations) {
      for (const bool gated : {false, true}) {
        for (const bool biased : {false, true}) {
          SCOPED_TRACE(::testing::Message()
                       << n << (gated ? " gated" : "") << (biased ? " bias" : ""));
          std::vector<float> got(kRows * stride, -77);
          kernels_.activate_rows({.activation = activation,
                                  .x = x.data(),
                                  .up = gated ? up.data() : nullptr,
                                  .rows = kRows,
                                  .n = n,
                                  .stride = stride,
                                  .bias = biased ? bias.data() : nullptr,
                                  .up_bias = biased && gated ? up_bias.data() : nullptr,
                                  .dst = reinterpret_cast<std::byte*>(got.data()),
                                  .dst_type = Dtype::kF32,
                                  .dst_stride = stride});
          for (size_t row = 0; row < kRows; ++row) {
            for (size_t i = 0; i < stride; ++i) {
              if (i >= n) {
                ASSERT_EQ(got[row * stride + i], -77);
                continue;
              }
              const size_t at = row * stride + i;
              const float in = x[at] + (biased ? bias[i] : 0);
              const double times = gated ? double{up[at]} + (biased ? up_bias[i] : 0) : 1.0;
              const auto [value, bound] = ExactActivation(activation, in);
              ASSERT_NEAR(got[at], value * times,
                          (bound + 4 * kU * std::abs(value)) * std::abs(times) + 1e-37);
            }
          }
        }
      }
    }
  }
}

// From far below to far above exp's range: no NaN, no infinity, the right limits.
TEST_P(RowwiseTest, ActivationsSurviveExtremeGates) {
  const Row gate({-1e30f, -1000, -89, -88, -87.4f, 0, 87.4f, 88.8f, 1000, 1e30f});
  Guarded<float> dst(10);
  for (Activation activation : kActivations) {
    kernels_.activate(dst.data(), Dtype::kF32, activation, gate.data(), 10);
    if (activation == Activation::kSigmoid) {
      for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(dst[i], 0, 1e-36) << gate[i];
      EXPECT_EQ(dst[5], 0.5f);
      for (size_t i = 6; i < 10; ++i) EXPECT_EQ(dst[i], 1) << gate[i];
      continue;
    }
    for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(dst[i], 0, 1e-7 + 1e-36 * -gate[i]) << gate[i];
    const bool squares = activation == Activation::kRelu2;  // 1e30^2 is infinite
    for (size_t i = 5; i < 10; ++i) EXPECT_FLOAT_EQ(dst[i], squares ? gate[i] * gate[i] : gate[i]);
  }
}

// The sigmoid errs by 7 u + alpha g u (1 - sigmoid), two products and a sum follow.
TEST_P(RowwiseTest, ClampedSwigluClampsBothSides) {
  constexpr float kAlpha = 1.702f, kLimit = 7;
  for (size_t n : kSizes) {
    const Row gate(Normal(n, 1, 6)), up(Normal(n, 2, 6));
    std::vector<double> exact(n), bound(n);
    for (size_t i = 0; i < n; ++i) {
      const double g = std::min(gate[i], kLimit);
      const double u = std::clamp(up[i], -kLimit, kLimit);
      const double sigmoid = 1 / (1 + std::exp(-static_cast<double>(kAlpha) * g));
      exact[i] = g * sigmoid * (u + 1);
      bound[i] = (10 + std::abs(kAlpha * g) * (1 - sigmoid)) * kU * std::abs(exact[i]);
    }
    for (Dtype type : kDstTypes) {
      Guarded<std::byte> dst(n * SizeOf(type));
      kernels_.clamped_swiglu(dst.data(), type, gate.data(), up.data(), n, kAlpha, kLimit);
      ExpectNear(dst, type, n, exact, bound);
    }
  }
}

TEST_P(RowwiseTest, ScalingRoundsOnceOrTwice) {
  for (size_t n : kSizes) {
    const std::vector<float> values = Normal(n, 1, 3), others = Normal(n, 2);
    Row scaled(values), weighed(values), sum(others);
    kernels_.scale(scaled.data(), 0.3f, n);
    kernels_.weigh(weighed.data(), Row(others).data(), 0.3f, n);
    kernels_.add_scaled(sum.data(), Row(values).data(), 0.3f, n);
    for (size_t i = 0; i < n; ++i) {
      const double product = static_cast<double>(values[i]) * 0.3f;
      ASSERT_NEAR(scaled[i], product, kU * std::abs(product));
      ASSERT_NEAR(weighed[i], product * others[i], 2.01 * kU * std::abs(product * others[i]));
      ASSERT_NEAR(sum[i], others[i] + product,
                  1.01 * kU * (std::abs(product) + std::abs(others[i] + product)));
    }
  }
}

// The softplus errs by 12 u and its product with the rate by one more, which e^ makes a relative
// error of as much; e^ itself by 4 u, and it flushes to zero what is not a normal number.
TEST_P(RowwiseTest, SoftplusDecayIsWithinTheBoundOfItsExponent) {
  for (const float rate : {-1e-3f, -1.0f, -16.0f}) {
    for (size_t n : kSizes) {
      std::vector<float> values = Normal(n, 1, 8);
      const float extremes[] = {-1e30f, -100, -20, 0, 20, 100, 1e30f};
      for (size_t i = 0; i < n; i += 3) values[i] = extremes[i % std::size(extremes)];
      const Row x(values), bias(Normal(n, 2));
      Guarded<float> dst(n);
      kernels_.softplus_decay(dst.data(), x.data(), bias.data(), rate, n);
      for (size_t i = 0; i < n; ++i) {
        const double z = x[i] + bias[i];
        const double exponent = rate * (z > 40 ? z : std::log1p(std::exp(z)));
        const double exact = std::exp(exponent);
        ASSERT_NEAR(dst[i], exact, exact * (4 + 13 * std::abs(exponent)) * kU * 1.01 + 2e-38)
            << rate << ", " << x[i] << " + " << bias[i];
      }
    }
  }
}

// No cancellation: any order of n additions errs by the factor 1 + n u.
TEST_P(RowwiseTest, SumSquaresIsWithinTheSummationBound) {
  for (size_t n : kSizes) {
    const Row x(Normal(n, 1, 3));
    double squares = 0;
    for (size_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
    ASSERT_NEAR(kernels_.sum_squares(x.data(), n), squares,
                1.01 * (static_cast<double>(n) + 1) * kU * squares);
  }
}

// tanh by way of 1 - 2 / (e^2x + 1) errs by 8 u of 1 and, before it reaches 1, by 2 |x| u.
TEST_P(RowwiseTest, SoftCapSaturates) {
  constexpr float kCap = 30;
  for (size_t n : kSizes) {
    std::vector<float> values = Normal(n, 1, 40);
    values[n - 1] = n % 2 ? 1e30f : -1e30f;
    Row row(values);
    kernels_.soft_cap(row.data(), kCap, n);
    for (size_t i = 0; i < n; ++i) {
      const double x = static_cast<double>(values[i]) / kCap, exact = std::tanh(x);
      const double felt = (1 - exact * exact) * std::min(std::abs(x), 100.0);
      ASSERT_NEAR(row[i], kCap * exact, kCap * (10 + 4 * felt) * kU) << values[i];
    }
  }
}

// No rounding but the destination's own, so bit for bit as the scalar table: special values, ties.
TEST_P(RowwiseTest, StoreAndAddAreExact) {
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

INSTANTIATE_TEST_SUITE_P(AllIsas, RowwiseTest, ::testing::ValuesIn(UsableIsas()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace pinion::kernels::testing
