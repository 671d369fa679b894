// The frame of the tile kernels, run on an emulation of the tiles: the same blocking, prefetching
// and tails as with AMX. Real tiles are compared with it where there are any.

#include "tests/kernels/emulated_tiles.h"
#include "tests/kernels/gemm_problem.h"

namespace pinion::kernels::testing {
namespace {

void RunEmulated(const GemmArgs& args) {
  impl::TileGemm<Emulated<PairOfBf16>>({.x = static_cast<const std::byte*>(args.x),
                                        .x_stride = args.k_padded * 2,
                                        .w = args.w,
                                        .y = reinterpret_cast<std::byte*>(args.y),
                                        .y_stride = args.ldy * 4,
                                        .rows = args.rows,
                                        .steps = args.k_padded / 32,
                                        .blocks = args.blocks});
  EXPECT_FALSE(EmulatedTiles::Now().configured) << "tiles were kept";
}

template <typename Run>
void RunAndCheckTiles(const Problem& p, size_t extra_columns, Run run) {
  SCOPED_TRACE(::testing::Message() << "rows " << p.rows << ", k " << p.k << ", blocks " << p.blocks
                                    << ", extra columns " << extra_columns);
  const size_t n = p.blocks * 64, ldy = n + extra_columns;
  Guarded<float> y((p.rows - 1) * ldy + n, 64);
  for (float& v : y) v = 1e30f;  // the kernel must overwrite, not add
  run(GemmArgs{p.x.data(), p.w.data(), y.data(), p.rows, p.k_padded, p.blocks, ldy});
  Check(p, y, ldy);
  for (size_t row = 0; row + 1 < p.rows; ++row) {
    for (size_t j = n; j < ldy; ++j) ASSERT_EQ(y[row * ldy + j], 1e30f) << "wrote between rows";
  }
}

template <typename Run>
void RunEveryShape(Run run) {
  for (size_t rows = 1; rows <= 64; ++rows) {
    RunAndCheckTiles(Problem(rows, 96, 2, Dtype::kBf16), rows % 3 * 16, run);
  }
  // One step, a ragged one, and depths that are cut (64 steps are 2048), for rows of every regime;
  // rows on both sides of what is kept in L2 at once (256).
  for (size_t k : {1, 33, 2048, 2080}) {
    for (size_t rows : {3, 16, 17, 40}) {
      RunAndCheckTiles(Problem(rows, k, k > 2000 ? 1 : 3, Dtype::kBf16), 0, run);
    }
  }
  for (size_t rows : {255, 256, 257, 305}) {
    RunAndCheckTiles(Problem(rows, 64, 1, Dtype::kBf16), 16, run);
  }
}

TEST(EmulatedTiles, MultiplyBfloat16WithinTheSummationBound) { RunEveryShape(RunEmulated); }

TEST(AmxTiles, MultiplyBfloat16WithinTheSummationBound) {
  const auto& usable = UsableIsas();
  if (std::find(usable.begin(), usable.end(), Isa::kAmx) == usable.end()) {
    GTEST_SKIP() << "this CPU, or what its operating system allows, has no AMX";
  }
  RunEveryShape(TableFor(Isa::kAmx).gemm_bf16);
}

// The frame with another product: int8 sums are exact.
TEST(EmulatedTiles, MultiplyInt8Exactly) {
  std::mt19937 rng(20261121);
  std::uniform_int_distribution<int> any(-128, 127);
  for (size_t rows : {1, 16, 31, 50}) {
    constexpr size_t kSteps = 2, kBlocks = 2, kK = kSteps * 64, kN = kBlocks * 64;
    Guarded<int8_t> x(rows * kK, 64), w(kN * kK, 64);
    Guarded<int32_t> y(rows * kN, 64);
    for (int8_t& v : x) v = static_cast<int8_t>(any(rng));
    for (int8_t& v : w) v = static_cast<int8_t>(any(rng));
    impl::TileGemm<Emulated<FourOfS8>>(
        {x.bytes(), kK, w.bytes(), y.bytes(), kN * 4, rows, kSteps, kBlocks});
    for (size_t row = 0; row < rows; ++row) {
      for (size_t n = 0; n < kN; ++n) {
        int32_t want = 0;
        for (size_t k = 0; k < kK; ++k) {  // [n/64][k/4][64 n][4 k]
          want += x[row * kK + k] * w[n / 64 * 64 * kK + (k / 4 * 64 + n % 64) * 4 + k % 4];
        }
        ASSERT_EQ(y[row * kN + n], want) << "rows " << rows << ", row " << row << ", column " << n;
      }
    }
  }
}

}  // namespace
}  // namespace pinion::kernels::testing
