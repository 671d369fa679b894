#include "engine/serve/vector_form.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "engine/base/base64.h"

namespace pinion {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::string Bytes(std::vector<float> values, ElementType type, const char* order = "native") {
  std::string out;
  AppendElements(out, values, {VectorForm::Kind::kBytes, type, order});
  return out;
}

TEST(VectorForm, NamesOfElementsAreVllms) {
  EXPECT_EQ(ElementTypeNames(), "float32, float16, bfloat16, fp8_e4m3, fp8_e5m2");
  for (const ElementType type : {ElementType::kF32, ElementType::kF16, ElementType::kBf16,
                                 ElementType::kE4m3, ElementType::kE5m2}) {
    EXPECT_EQ(ElementTypeOf(Name(type)), type);
    EXPECT_EQ(Bytes({1, 2}, type).size(), 2 * SizeOf(type));
  }
  EXPECT_FALSE(ElementTypeOf("float64"));
}

TEST(VectorForm, ElementsHaveTheOrderThatIsAskedFor) {
  EXPECT_EQ(Bytes({1}, ElementType::kF32), std::string("\0\0\x80\x3f", 4));
  EXPECT_EQ(Bytes({1}, ElementType::kF32, "little"), Bytes({1}, ElementType::kF32));
  EXPECT_EQ(Bytes({1}, ElementType::kF32, "big"), std::string("\x3f\x80\0\0", 4));
  EXPECT_EQ(Bytes({1, -2}, ElementType::kBf16, "big"), std::string("\x3f\x80\xc0\0", 4));
  EXPECT_EQ(Bytes({1, -2}, ElementType::kF16, "little"), std::string("\0\x3c\0\xc0", 4));
}

// The value of a float of 1 sign, 5 exponent and 2 mantissa bits.
double ValueOf(uint8_t bits) {
  const int exponent = bits >> 2 & 31, mantissa = bits & 3;
  const double size = exponent == 0 ? std::ldexp(mantissa / 4.0, -14)
                                    : std::ldexp(1 + mantissa / 4.0, exponent - 15);
  return bits >> 7 ? -size : size;
}

TEST(VectorForm, RoundsToTheNearestFloatOfFiveExponentBits) {
  const auto bits = [](double value) {
    return static_cast<uint8_t>(Bytes({static_cast<float>(value)}, ElementType::kE5m2)[0]);
  };
  for (int i = 0; i < 0x7c; ++i) {
    const auto code = static_cast<uint8_t>(i);
    EXPECT_EQ(bits(ValueOf(code)), code);
    EXPECT_EQ(bits(-ValueOf(code)), code | 0x80);
    if (i == 0x7b) continue;  // infinity is next
    const double next = ValueOf(static_cast<uint8_t>(i + 1)), middle = (ValueOf(code) + next) / 2;
    EXPECT_EQ(bits(middle), i % 2 == 0 ? i : i + 1) << "of two the even one";
    EXPECT_EQ(bits(std::nextafter(static_cast<float>(middle), 0.0F)), i);
    EXPECT_EQ(bits(std::nextafter(static_cast<float>(middle), kInfinity)), i + 1);
  }
  EXPECT_EQ(bits(61439), 0x7b) << "the largest";
  EXPECT_EQ(bits(61440), 0x7c);
  EXPECT_EQ(bits(-kInfinity), 0xfc);
  EXPECT_EQ(bits(std::numeric_limits<float>::quiet_NaN()) & 0x7f, 0x7f);
}

TEST(VectorForm, NumbersReadBackAsTheSameFloats) {
  std::string out;
  AppendNumbers(out, std::vector<float>{0.1F, -2, kInfinity});
  EXPECT_EQ(out, "[0.1,-2,null]");
}

TEST(VectorForm, Base64IsThatOfTheRfc) {
  const std::pair<const char*, const char*> cases[] = {
      {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, encoded] : cases) {
    std::string out;
    AppendBase64(out, plain);
    EXPECT_EQ(out, encoded);
  }
}

TEST(VectorForm, SignsFillBytesFromTheirHighestBit) {
  EXPECT_EQ(
      SignBits(std::vector<float>{1, -1, 0, -0.5F, -1, -1, -1, 2, -1, -1, -1, -1, -1, -1, -1, 3}),
      "\xa1\x01");
}

}  // namespace
}  // namespace pinion
