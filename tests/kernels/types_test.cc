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

TEST(Types, E4m3HasFourBitsOfExponentAndThreeOfMantissa) {
  const auto value = [](int byte) { return ToFloat(E4m3{static_cast<uint8_t>(byte)}); };
  EXPECT_EQ(value(0x00), 0);
  EXPECT_EQ(value(0x01), std::ldexp(1.0f, -9));  // the smallest subnormal number
  EXPECT_EQ(value(0x08), std::ldexp(1.0f, -6));  // the smallest normal one
  EXPECT_EQ(value(0x38), 1);
  EXPECT_EQ(value(0x39), 1.125);
  EXPECT_EQ(value(0x7e), kLargestE4m3);
  EXPECT_EQ(value(0xfe), -kLargestE4m3);
  EXPECT_TRUE(std::isnan(value(0x7f)) && std::isnan(value(0xff)));
  for (int byte = 1; byte < 0x7f; ++byte) {
    EXPECT_GT(value(byte), value(byte - 1));
    EXPECT_EQ(value(byte | 0x80), -value(byte));
  }
}

// The midpoint of neighbours goes to the even one, floats beside it to the nearer.
TEST(Types, FloatsRoundToTheNearestE4m3) {
  for (int byte = 0; byte < 0x7e; ++byte) {
    const float low = ToFloat(E4m3{static_cast<uint8_t>(byte)});
    const float high = ToFloat(E4m3{static_cast<uint8_t>(byte + 1)}), middle = (low + high) / 2;
    for (const int sign : {0, 0x80}) {
      const auto rounded = [&](float value) { return ToE4m3(sign ? -value : value).bits; };
      ASSERT_EQ(rounded(low), byte | sign);
      ASSERT_EQ(rounded(middle), (byte % 2 == 0 ? byte : byte + 1) | sign) << byte;
      ASSERT_EQ(rounded(std::nextafter(middle, 0.0f)), byte | sign) << byte;
      ASSERT_EQ(rounded(std::nextafter(middle, 1e9f)), (byte + 1) | sign) << byte;
    }
  }
  EXPECT_EQ(ToE4m3(1e9f).bits, 0x7e);
  EXPECT_EQ(ToE4m3(-std::numeric_limits<float>::infinity()).bits, 0xfe);
  EXPECT_EQ(ToE4m3(std::nanf("")).bits & 0x7f, 0x7f);
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
