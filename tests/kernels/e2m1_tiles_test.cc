// Codes of e2m1 on tiles of bfloat16, which the emulation multiplies here, and real tiles if the
// CPU has them.

#include <algorithm>
#include <cmath>

#include "kernels/integer.h"
#include "tests/kernels/emulated_products.h"
#include "tests/kernels/integer_problem.h"

namespace pinion::kernels::testing {
namespace {

using IntGemm = void (*)(const IntLayout&, const IntGemmArgs&);

// Rows between y's and behind them stay as they are.
void ExpectE2m1WithinSums(const IntLayout& layout, size_t rows, size_t blocks, IntGemm gemm) {
  SCOPED_TRACE(::testing::Message() << "k " << layout.k << ", group " << layout.group << ", rows "
                                    << rows << ", blocks " << blocks);
  const IntProblem p(layout, rows, blocks);
  const AlignedRows x(p.Rounded(IntTableFor(Isa::kScalar), {}));
  const size_t n = blocks * kBlockN, ldy = n + 16;
  Guarded<float> y((rows - 1) * ldy + n, 64);
  for (float& v : y) v = 1e30f;
  gemm(layout, {x.bytes.data(), p.packed.data(), y.data(), rows, blocks, ldy});
  ExpectWithinSums(p, x.bytes.data(), y.data(), ldy);
  for (size_t row = 0; row + 1 < rows; ++row)
    for (size_t j = n; j < ldy; ++j) ASSERT_EQ(y[row * ldy + j], 1e30f) << "wrote between rows";
}

// Columns that fill a step and that do not, one slice of K and several (32 steps are 1024), groups
// of a half, one and several steps; rows that end in tiles of every kind, and more than a part of
// them.
void RunE2m1(IntGemm gemm) {
  const auto layout = [](size_t k, size_t group) {
    return IntLayout{4, k, group, -12, false, group == 16 ? ScaleType::kE4m3 : ScaleType::kPower};
  };
  for (const size_t rows : {33, 40, 48, 64, 70})
    for (const size_t k : {32, 80, 1024, 1056})
      ExpectE2m1WithinSums(layout(k, 32), rows, k > 1000 ? 2 : 3, gemm);
  ExpectE2m1WithinSums(layout(320, 64), 40, 1, gemm);
  for (const size_t rows : {128, 129, 200}) ExpectE2m1WithinSums(layout(96, 32), rows, 2, gemm);
  ExpectE2m1WithinSums(layout(2880, 32), 130, 2, gemm);
  // Half a step differs in how weights are widened, whatever the rows.
  for (const size_t k : {32, 96, 1056})
    ExpectE2m1WithinSums(layout(k, 16), 40, k > 1000 ? 2 : 3, gemm);
  ExpectE2m1WithinSums(layout(96, 16), 200, 2, gemm);
}

TEST(EmulatedTiles, MultiplyE2m1WithinTheirSums) {
  ASSERT_TRUE(impl::FitsE2m1Tiles({4, 2880, 32, -12, false, ScaleType::kPower}, 33));
  ASSERT_TRUE(impl::FitsE2m1Tiles({4, 2880, 16, -12, false, ScaleType::kE4m3}, 33));
  RunE2m1(MultiplyE2m1On<Emulated<PairOfBf16>>);
  EXPECT_FALSE(EmulatedTiles::Now().configured) << "tiles were kept";
}

TEST(EmulatedTiles, AddOutliersToE2m1AsTheScalarTable) {
  for (const IntLayout& layout : {IntLayout{4, 512, 32, -12, false, ScaleType::kPower, 8},
                                  IntLayout{4, 512, 16, -12, false, ScaleType::kE4m3, 8}}) {
    IntProblem p(layout, 40, 2);
    for (size_t row = 0; row < p.rows; ++row)
      p.x[row * 512 + 5] *= 100, p.x[row * 512 + 511] *= 100;
    const auto x = p.Rounded(IntTableFor(Isa::kScalar), {});
    IntTable tiles = IntTableFor(Isa::kScalar);
    tiles.gemm = MultiplyE2m1On<Emulated<PairOfBf16>>;
    const auto got = Multiply(tiles, p, x), want = Multiply(IntTableFor(Isa::kScalar), p, x);
    for (size_t row = 0; row < p.rows; ++row) {
      for (size_t n = 0; n < 2 * kBlockN; ++n) {
        // Of outliers, whose value is among x, as of all others.
        double magnitude = 0;
        for (size_t k = 0; k < p.layout.k; ++k)
          magnitude += std::abs(p.x[row * p.layout.k + k] * p.Weight(n, k));
        const size_t at = row * 2 * kBlockN + n;
        ASSERT_NEAR(got[at], want[at],
                    magnitude * 2 * static_cast<double>(p.layout.k + 11) * 0x1p-24);
      }
    }
  }
}

TEST(EmulatedTiles, LeaveE2m1ToVectorsIfItDoesNotFit) {
  EXPECT_FALSE(impl::FitsE2m1Tiles({4, 2880, 32, -12, false, ScaleType::kPower}, 32));
  EXPECT_FALSE(impl::FitsE2m1Tiles({4, 80, 16, -12, false, ScaleType::kPower}, 64));
  EXPECT_FALSE(impl::FitsE2m1Tiles({4, 80, 16, -12, false, ScaleType::kE4m3}, 64));
  EXPECT_FALSE(impl::FitsE2m1Tiles({4, 2880, 32, -8, false}, 64));
}

TEST(AmxTiles, MultiplyE2m1WithinTheirSums) {
  const auto& usable = UsableIsas();
  if (std::find(usable.begin(), usable.end(), Isa::kAmx) == usable.end())
    GTEST_SKIP() << "this CPU, or what its operating system allows, has no AMX";
  RunE2m1(IntTableFor(Isa::kAmx).gemm);
}

}  // namespace
}  // namespace pinion::kernels::testing
