#include "kernels/e4m3.h"

#include <cmath>
#include <cstring>

#include "tests/kernels/e4m3_problem.h"

namespace pinion::kernels::testing {
namespace {

std::vector<float> MultiplyE4m3(Isa isa, const E4m3Problem& p, size_t rows,
                                Prefetch prefetch = Prefetch::kNear) {
  const size_t ldy = p.blocks * kBlockN;
  Guarded<float> y(rows * ldy, 64);
  E4m3TableFor(isa).gemm(
      p.layout, {p.x.data(), p.x_type, p.packed.data(), y.data(), rows, p.blocks, ldy, prefetch});
  return {y.begin(), y.end()};
}

// Whole rows and groups, also narrow and short ones, with odd sizes; rows that fill one tile, two,
// some, and so many that bytes are converted beforehand.
const IntLayout kE4m3Layouts[] = {
    E4m3Layout(1, 1),     E4m3Layout(31, 31),   E4m3Layout(520, 520), E4m3Layout(1100, 1100),
    E4m3Layout(256, 128), E4m3Layout(300, 128), E4m3Layout(96, 16),   E4m3Layout(200, 64)};
constexpr size_t kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 13, 24, 25, 41};

class E4m3Test : public ::testing::TestWithParam<Isa> {};

TEST_P(E4m3Test, ProductsAreWithinTheirRoundings) {
  for (const IntLayout& layout : kE4m3Layouts)
    for (const Dtype x_type : {Dtype::kBf16, Dtype::kF32})
      for (const size_t rows : kRowCounts) {
        const E4m3Problem p(layout, rows, 2, x_type);
        p.ExpectWithinRoundings(MultiplyE4m3(GetParam(), p, rows), 128, Name(GetParam()));
      }
}

// Every byte by itself: one column that is not zero, one row of activations, which is 1.
TEST_P(E4m3Test, EveryByteHasItsValue) {
  for (const Dtype x_type : {Dtype::kBf16, Dtype::kF32}) {
    for (const size_t rows : {size_t{1}, size_t{41}}) {
      E4m3Problem p(E4m3Layout(4, 4), rows, 4, x_type);
      std::fill(p.codes.begin(), p.codes.end(), 0);
      std::fill(p.scales.begin(), p.scales.end(), 0.5f);
      for (size_t n = 0; n < 256; ++n)
        p.codes[n * 4 + n % 4] = IsNan(static_cast<int8_t>(n)) ? 0 : static_cast<int8_t>(n);
      p.FillX(std::vector<float>(rows * 4, 1));
      p.Pack();
      const auto y = MultiplyE4m3(GetParam(), p, rows);
      for (size_t n = 0; n < 256; ++n)
        ASSERT_EQ(y[(rows - 1) * 256 + n], 0.5 * ValueOf(p.codes[n * 4 + n % 4])) << "byte " << n;
    }
  }
}

// Subnormals would vanish in instructions that read them as zero: 31 of them add up exactly.
TEST_P(E4m3Test, SubnormalsCount) {
  for (const Dtype x_type : {Dtype::kBf16, Dtype::kF32}) {
    E4m3Problem p(E4m3Layout(31, 31), 2, 1, x_type);
    std::fill(p.codes.begin(), p.codes.end(), 3);
    std::fill(p.scales.begin(), p.scales.end(), 1.0f);
    p.FillX(std::vector<float>(2 * 31, 1));
    p.Pack();
    for (const float value : MultiplyE4m3(GetParam(), p, 2)) ASSERT_EQ(value, 31 * 3 * 0x1p-9f);
  }
}

// So that a sequence's results do not depend on what else is in the batch.
TEST_P(E4m3Test, ARowDoesNotDependOnHowManyThereAre) {
  if (GetParam() == Isa::kAmx) GTEST_SKIP() << "tiles, for many rows, add in another order";
  for (const Dtype x_type : {Dtype::kBf16, Dtype::kF32}) {
    const E4m3Problem p(E4m3Layout(300, 128), 41, 2, x_type);
    const auto all = MultiplyE4m3(GetParam(), p, 41);
    for (const size_t rows : kRowCounts) {
      const auto some = MultiplyE4m3(GetParam(), p, rows);
      ASSERT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << rows << " rows";
    }
  }
}

TEST_P(E4m3Test, EveryPrefetchGivesTheSameBits) {
  const E4m3Problem p(E4m3Layout(300, 128), 7, 2, Dtype::kBf16);
  for (const size_t rows : {size_t{1}, size_t{7}}) {
    const auto near = MultiplyE4m3(GetParam(), p, rows);
    for (const Prefetch prefetch : kPrefetches)
      EXPECT_EQ(MultiplyE4m3(GetParam(), p, rows, prefetch), near);
  }
}

TEST_P(E4m3Test, ANanReachesItsOutputAndNoOther) {
  for (const int8_t nan : {int8_t{0x7f}, int8_t{-1}}) {
    E4m3Problem p(E4m3Layout(256, 128), 1, 1, Dtype::kBf16);
    p.codes[5 * 256 + 200] = nan;
    p.Pack();
    const auto y = MultiplyE4m3(GetParam(), p, 1);
    for (size_t n = 0; n < 64; ++n) EXPECT_EQ(std::isnan(y[n]), n == 5) << n;
  }
}

// As kernels/integer.h says: halves of 32 outputs, in them fours of outputs 0 to 15 and of 16 to 31
// in turn, each with two columns side by side.
TEST(E4m3Packing, PutsBytesInThePlacesOfTheLayout) {
  const E4m3Problem p(E4m3Layout(40, 16), 1, 1, Dtype::kF32);
  const IntLayout& layout = p.layout;
  for (size_t n = 0; n < 64; ++n) {
    for (size_t k = 0; k < 40; ++k) {
      const size_t place = n % 16 / 4 * 2 + n % 32 / 16;
      const size_t at = k / 16 * layout.group_bytes() + k % 16 / 2 * 128 + n / 32 * 64 + place * 8 +
                        n % 4 * 2 + k % 2;
      ASSERT_EQ(static_cast<int8_t>(p.packed[at]), p.codes[n * 40 + k]) << n << ", " << k;
    }
    for (size_t group = 0; group < 3; ++group) {
      float scale;
      std::memcpy(&scale, p.packed.data() + group * layout.group_bytes() + 16 * 64 + 4 * n, 4);
      ASSERT_EQ(scale, p.scales[n * 3 + group]);
    }
  }
}

TEST(E4m3Packing, MissingOutputsAreZero) {
  E4m3Problem p(E4m3Layout(40, 16), 1, 1, Dtype::kF32);
  PackIntBlock(p.packed.data(), p.layout, p.codes.data(), p.scales.data(), nullptr, 13);
  const auto y = MultiplyE4m3(Isa::kScalar, p, 1);
  for (size_t n = 0; n < 64; ++n) EXPECT_EQ(y[n] == 0, n >= 13) << n;
}

TEST(E4m3Packing, TakesAByteAWeightAndAScaleAGroup) {
  const IntLayout layout = E4m3Layout(4096, 128);
  EXPECT_EQ(layout.block_bytes(), 64 * (4096 + 4 * 32) + 64 * 8);
  EXPECT_EQ(E4m3Layout(4096, 4096).block_bytes(), 64 * 4096 + 64 * 8);
}

INSTANTIATE_TEST_SUITE_P(AllIsas, E4m3Test, ::testing::ValuesIn(UsableIsas()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace pinion::kernels::testing
