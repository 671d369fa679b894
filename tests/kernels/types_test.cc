#include "kernels/types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace pinion::kernels {
namespace {

float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// The number that a pattern of `exponent_bits` and `mantissa_bits` stands for, by IEEE 754's
// formula.
double Formula(uint32_t bits, int exponent_bits, int mantissa_bits) {
  const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = bits >> (exponent_bits + mantissa_bits) ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  }
  const double fraction = std::ldexp(mantissa, -mantissa_bits) + (exponent ? 1 : 0);
  return sign * std::ldexp(fraction, (exponent ? exponent : 1) - bias);
}

TEST(Types, EveryPatternWidensToItsFormulaAndComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const double bf16 = Formula(bits, 8, 7), f16 = Formula(bits, 5, 10);
    if (std::isnan(bf16)) {
      EXPECT_TRUE(std::isnan(ToFloat(Bf16{half})));
      EXPECT_TRUE(std::isnan(ToFloat(ToBf16(ToFloat(Bf16{half})))));
    } else {
      ASSERT_EQ(ToFloat(Bf16{half}), bf16) << bits;
      ASSERT_EQ(ToBf16(ToFloat(Bf16{half})).bits, bits);
    }
    if (std::isnan(f16)) {
      EXPECT_TRUE(std::isnan(ToFloat(F16{half})));
      EXPECT_TRUE(std::isnan(ToFloat(ToF16(ToFloat(F16{half})))));
    } else {
      ASSERT_EQ(ToFloat(F16{half}), f16) << bits;
      ASSERT_EQ(ToF16(ToFloat(F16{half})).bits, bits);
    }
  }
}

// For every pair of neighbours: the midpoint goes to the even one, a float beside it to the nearer.
template <typename Half, typename Narrow>
void CheckRounding(uint32_t first_infinity, Narrow narrow) {
  for (uint32_t low = 0; low + 1 < first_infinity; ++low) {
    const double a = ToFloat(Half{static_cast<uint16_t>(low)});
    const double b = ToFloat(Half{static_cast<uint16_t>(low + 1)});
    const float middle = static_cast<float>((a + b) / 2);  // exact: one bit more than the type has
    const uint32_t even = low % 2 == 0 ? low : low + 1;
    ASSERT_EQ(narrow(middle).bits, even) << low;
    ASSERT_EQ(narrow(-middle).bits, even | 0x8000u) << low;
    ASSERT_EQ(narrow(std::nextafter(middle, -1.0f)).bits, low) << low;
    ASSERT_EQ(narrow(std::nextafter(middle, INFINITY)).bits, low + 1) << low;
  }
}

TEST(Types, RoundsToNearestTiesToEven) {
  CheckRounding<Bf16>(0x7f80, ToBf16);
  CheckRounding<F16>(0x7c00, ToF16);
}

TEST(Types, OverflowsToInfinityFromHalfAStepBeyondTheLargest) {
  EXPECT_EQ(ToF16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(ToF16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(ToF16(-1e30f).bits, 0xfc00);
  EXPECT_EQ(ToBf16(FromBits(0x7f7f7fff)).bits, 0x7f7f);
  EXPECT_EQ(ToBf16(FromBits(0x7f7f8000)).bits, 0x7f80);
}

// Payloads whose kept bits are all zero must not turn into infinity.
TEST(Types, NanStaysNan) {
  for (uint32_t bits : {0x7f800001u, 0x7fc00000u, 0xff800001u, 0xffffffffu}) {
    EXPECT_TRUE(std::isnan(ToFloat(ToBf16(FromBits(bits))))) << bits;
    EXPECT_TRUE(std::isnan(ToFloat(ToF16(FromBits(bits))))) << bits;
  }
}

TEST(Types, HaveNames) {
  EXPECT_STREQ(Name(Dtype::kF32), "float32");
  EXPECT_STREQ(Name(Dtype::kBf16), "bfloat16");
  EXPECT_STREQ(Name(Dtype::kF16), "float16");
}

}  // namespace
}  // namespace pinion::kernels
