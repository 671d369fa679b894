// Rounding of activations to e4m3.

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/e4m3.h"
#include "tests/kernels/testing.h"

namespace pinion::kernels::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// The row as a table rounds it; of activations in bfloat16, too, as floats.
std::vector<float> Rounded(Isa isa, const std::vector<float>& row, Dtype type,
                           const E4m3Rounding& rounding) {
  const size_t bytes = row.size() * SizeOf(type);
  Guarded<std::byte> x(bytes, 4), dst(bytes, 4);
  for (size_t i = 0; i < row.size(); ++i) Set(x.data(), type, i, row[i]);
  E4m3TableFor(isa).round({dst.data(), x.data(), type, row.size(), rounding});
  E4m3TableFor(isa).round({x.data(), x.data(), type, row.size(), rounding});
  EXPECT_EQ(std::memcmp(x.data(), dst.data(), bytes), 0) << "in place";
  std::vector<float> got(row.size());
  for (size_t i = 0; i < got.size(); ++i) got[i] = Get(dst.data(), type, i);
  return got;
}

float InType(Dtype type, float value) {
  return type == Dtype::kBf16 ? ToFloat(ToBf16(value)) : value;
}

float RoundedBy(float scale, float value) {
  return scale == 0 ? 0 : scale * ToFloat(ToE4m3(value / scale));
}

// Magnitudes from 1 to 2^-20, so that some fall among the subnormals and some to zero.
std::vector<float> Wide(size_t n, Dtype type) {
  std::vector<float> values = Normal(n, 5);
  for (size_t i = 0; i < n; ++i)
    values[i] = InType(type, std::ldexp(values[i], -static_cast<int>(i * 7 % 20)));
  return values;
}

class E4m3RoundTest : public ::testing::TestWithParam<Isa> {};

// Every bfloat16 is a value of e4m3, lies half-way between two of them, or on either side.
TEST_P(E4m3RoundTest, GoesToTheNearestValueAndHalvesToEven) {
  std::vector<float> all;
  for (uint32_t bits = 0; bits < 0x10000; ++bits)
    if (const float value = ToFloat(Bf16{static_cast<uint16_t>(bits)}); !std::isnan(value))
      all.push_back(value);
  for (const Dtype type : {Dtype::kBf16, Dtype::kF32}) {
    const auto got = Rounded(GetParam(), all, type, {.scale = 1});
    for (size_t i = 0; i < all.size(); ++i)
      ASSERT_EQ(got[i], ToFloat(ToE4m3(all[i]))) << all[i] << " in " << Name(type);
  }
  for (float& value : all) value = std::nextafter(value, 0.0f);
  const auto got = Rounded(GetParam(), all, Dtype::kF32, {.scale = 1});
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(got[i], ToFloat(ToE4m3(all[i]))) << all[i];
}

TEST_P(E4m3RoundTest, TakesTheCheckpointsScale) {
  for (const Dtype type : {Dtype::kBf16, Dtype::kF32}) {
    const std::vector<float> row = Wide(300, type);
    for (const float scale : {0.001f, 0.0171f, 3.7f}) {  // the first one overflows
      const auto got = Rounded(GetParam(), row, type, {.scale = scale, .group = 128});
      for (size_t i = 0; i < row.size(); ++i)
        ASSERT_EQ(got[i], InType(type, RoundedBy(scale, row[i]))) << i << " by " << scale;
    }
  }
}

// Groups are those of the whole matrix, also if a rank's columns begin or end inside one.
TEST_P(E4m3RoundTest, ScalesEachGroupByItsLargest) {
  for (const Dtype type : {Dtype::kBf16, Dtype::kF32})
    for (const size_t k : {1, 15, 17, 64, 127, 128, 129, 300, 520})
      for (const size_t group : {0, 16, 128})
        for (const size_t first : {0, 64, 100, 128}) {
          const std::vector<float> row = Wide(k, type);
          const auto got = Rounded(GetParam(), row, type, {.group = group, .first = first});
          const auto group_of = [&](size_t i) { return group == 0 ? 0 : (first + i) / group; };
          for (size_t i = 0; i < k; ++i) {
            float largest = 0;
            for (size_t other = 0; other < k; ++other)
              if (group_of(other) == group_of(i)) largest = std::max(largest, std::abs(row[other]));
            ASSERT_EQ(got[i], InType(type, RoundedBy(largest / 448, row[i])))
                << i << " of " << k << ", group " << group << ", first " << first;
          }
        }
}

// With 448 the quotient is a power of two itself, and stays.
TEST_P(E4m3RoundTest, PowersOfTwoAreNoSmallerThanTheQuotient) {
  for (const Dtype type : {Dtype::kBf16, Dtype::kF32})
    for (const float largest : {448.0f, 449.0f, 7.0f, 0.1f, 0x1.8p-100f, 0.0f}) {
      std::vector<float> row = Wide(200, type);
      for (float& value : row) value = InType(type, std::clamp(value * largest, -largest, largest));
      row[77] = InType(type, largest);
      const auto got = Rounded(GetParam(), row, type, {.powers_of_two = true});
      const float quotient = row[77] / 448;
      const float scale = quotient == 0 ? 0 : std::exp2(std::ceil(std::log2(quotient)));
      for (size_t i = 0; i < row.size(); ++i)
        ASSERT_EQ(got[i], InType(type, RoundedBy(scale, row[i]))) << i << ", largest " << largest;
    }
}

TEST_P(E4m3RoundTest, ZerosAndTheSmallestNumbersStayNumbers) {
  for (const float value : {0.0f, -0.0f, 0x1p-149f, -0x1p-140f})
    for (const float got : Rounded(GetParam(), std::vector<float>(40, value), Dtype::kF32, {}))
      ASSERT_LE(std::abs(got), std::abs(value)) << value;
}

// Rounding must not hide broken values.
TEST_P(E4m3RoundTest, NanAndInfinityReachTheirGroupAndNoOther) {
  for (const float broken : {kNan, -kNan, kInf, -kInf})
    for (const Dtype type : {Dtype::kBf16, Dtype::kF32}) {
      std::vector<float> row(256, 1);
      row[130] = broken;
      const auto got = Rounded(GetParam(), row, type, {.group = 128});
      for (size_t i = 0; i < 256; ++i) ASSERT_EQ(std::isnan(got[i]), i >= 128) << broken << i;
    }
  const auto got = Rounded(GetParam(), {1, kNan, kInf, -kInf}, Dtype::kF32, {.scale = 0.5f});
  EXPECT_EQ(got[0], 1);
  EXPECT_TRUE(std::isnan(got[1]));
  EXPECT_EQ(got[2], 224);
  EXPECT_EQ(got[3], -224);
}

INSTANTIATE_TEST_SUITE_P(AllIsas, E4m3RoundTest, ::testing::ValuesIn(UsableIsas()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace pinion::kernels::testing
