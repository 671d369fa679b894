// The frame of the tile kernels, run on an emulation of the tiles: the same blocking, prefetching
// and tails as with AMX. Real tiles, if the CPU has them, are compared with it.

#include "kernels/impl/int_tiles.inl.h"
#include "kernels/impl/tile_probe.inl.h"
#include "kernels/integer.h"
#include "kernels/probe.h"
#include "tests/kernels/e4m3_problem.h"
#include "tests/kernels/emulated_products.h"
#include "tests/kernels/gemm_problem.h"

namespace pinion::kernels::testing {
namespace {

void RunEmulated(const GemmArgs& args) {
  MultiplyBf16On<Emulated<PairOfBf16>>(args);
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
      RunAndCheckTiles(Problem(rows, k, k > 2000 ? 2 : 3, Dtype::kBf16), 0, run);
    }
  }
  for (size_t rows : {255, 256, 257, 305}) {
    RunAndCheckTiles(Problem(rows, 64, 1, Dtype::kBf16), 16, run);
  }
  // More than 1 MiB of activations at once: slices of K, rows that end in tiles of every kind.
  for (size_t rows : {130, 150, 250}) {
    RunAndCheckTiles(Problem(rows, rows < 200 ? 4160 : 2080, 2, Dtype::kBf16), 16, run);
  }
}

TEST(EmulatedTiles, HoldTheRulesOfHardware) {
  const impl::TileShape good;
  EXPECT_EQ(FaultOfShape(good), nullptr);
  EXPECT_EQ(FaultOfDot(good, 0, 4, 6), nullptr);
  const auto faults = [&](auto change) {
    impl::TileShape shape;
    change(shape);
    return FaultOfShape(shape) != nullptr;
  };
  EXPECT_TRUE(faults([](auto& shape) { shape.palette = 0; }));
  EXPECT_TRUE(faults([](auto& shape) { shape.reserved[13] = 1; }));
  EXPECT_TRUE(faults([](auto& shape) { shape.rows[3] = 17; }));
  EXPECT_TRUE(faults([](auto& shape) { shape.row_bytes[3] = 68; }));
  EXPECT_TRUE(faults([](auto& shape) { shape.rows[7] = 0; }));
  EXPECT_TRUE(faults([](auto& shape) { shape.rows[8] = shape.row_bytes[8] = 16; }));
  impl::TileShape few;
  few.rows[1] = few.rows[4] = 3;
  EXPECT_EQ(FaultOfDot(few, 1, 4, 6), nullptr);
  EXPECT_NE(FaultOfDot(few, 0, 4, 6), nullptr) << "sums of 16 rows, a of 3";
  EXPECT_NE(FaultOfDot(few, 1, 4, 4), nullptr);
  EXPECT_NE(FaultOfDot(few, 0, 5, 4), nullptr) << "b of 3 rows";
}

TEST(EmulatedTiles, MultiplyBfloat16WithinTheSummationBound) { RunEveryShape(RunEmulated); }

void RunApart(void (*gemm)(const GemmArgs&)) {
  constexpr size_t kGap = 32;
  for (const auto& [rows, k] :
       {std::pair<size_t, size_t>{3, 160}, {17, 2080}, {70, 160}, {130, 4160}}) {
    const Problem p(rows, k, 2, Dtype::kBf16);
    Guarded<std::byte> x(p.SpreadBytes(kGap), 64);
    p.Spread(kGap, x);
    RunAndCheckTiles(p, 0, [&](GemmArgs args) {
      args.x = x.data();
      args.x_stride = p.k_padded + kGap;
      gemm(args);
    });
  }
}

TEST(EmulatedTiles, MultiplyRowsThatLieApart) { RunApart(RunEmulated); }

TEST(AmxTiles, MultiplyBfloat16WithinTheSummationBound) {
  const auto& usable = UsableIsas();
  if (std::find(usable.begin(), usable.end(), Isa::kAmx) == usable.end()) {
    GTEST_SKIP() << "this CPU, or what its operating system allows, has no AMX";
  }
  RunEveryShape(TableFor(Isa::kAmx).gemm_bf16);
  RunApart(TableFor(Isa::kAmx).gemm_bf16);
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
        {x.bytes(), kK, w.bytes(), kK * 64, y.bytes(), kN * 4, rows, kSteps, kBlocks});
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

// ---- Integer weights over the same frame.

// Codes, scales and activations of any value, packed and rounded.
struct IntTileProblem {
  IntTileProblem(const IntLayout& layout, size_t rows)
      : layout(layout),
        rows(rows),
        w(kBlocks * layout.block_bytes(), 64),
        x(rows * layout.row_bytes(), 64) {
    std::mt19937 rng(20261122);
    std::vector<int8_t> codes(64 * layout.k);
    std::vector<float> scales(64 * layout.groups()), offsets(scales.size()), row(layout.k);
    for (size_t block = 0; block < kBlocks; ++block) {
      for (int8_t& code : codes)
        code = static_cast<int8_t>(layout.lowest + static_cast<int>(rng() % (1u << layout.bits)));
      for (float& scale : scales) scale = 0.001f * static_cast<float>(1 + rng() % 100);
      for (float& offset : offsets)
        offset = layout.has_offsets ? 0.01f * static_cast<float>(rng() % 100) : 0;
      PackIntBlock(w.data() + block * layout.block_bytes(), layout, codes.data(), scales.data(),
                   offsets.data(), 64);
    }
    std::normal_distribution<float> normal;
    for (size_t r = 0; r < rows; ++r) {
      for (float& value : row) value = normal(rng);
      if (layout.outliers > 0) row[5] *= 100, row[layout.k - 1] *= 100;
      IntTableFor(Isa::kScalar)
          .round(layout,
                 {x.data() + r * layout.row_bytes(), row.data(), Dtype::kF32,
                  layout.whole_rows() && layout.outliers == 0 ? Rounding{0.03f, -5} : Rounding{}});
    }
  }
  std::vector<float> Run(void (*gemm)(const IntLayout&, const IntGemmArgs&)) {
    const size_t ldy = kBlocks * 64 + 16;
    Guarded<float> y(rows * ldy, 64);
    for (float& v : y) v = 1e30f;
    gemm(layout, {x.data(), w.data(), y.data(), rows, kBlocks, ldy});
    return {y.begin(), y.end()};
  }

  static constexpr size_t kBlocks = 2;
  IntLayout layout;
  size_t rows;
  Guarded<std::byte> w, x;
};

constexpr IntLayout kTileLayouts[] = {{8, 128, 128, -128, false},
                                      {8, 512, 512, -128, false},
                                      {8, 256, 128, -128, false},
                                      {4, 256, 128, -8, false},
                                      {4, 256, 128, 0, true},
                                      {4, 192, 64, 0, true},
                                      {4, 2176, 128, 0, true},
                                      {4, 4224, 128, -8, false},
                                      {8, 2176, 128, -128, false},
                                      {8, 512, 512, -128, false, ScaleType::kF16, 8},
                                      {4, 256, 128, -8, false, ScaleType::kF16, 8},
                                      {4, 2176, 128, 0, true, ScaleType::kF16, 22},
                                      {8, 256, 128, -128, false, ScaleType::kF16, 8}};
// Of which 130 rows are more than is kept in L2 at once.
constexpr IntLayout kDeepLayouts[] = {{8, 8256, 8256, -128, false}, {4, 8320, 128, 0, true}};

void RunIntEmulated(const IntLayout& layout, const IntGemmArgs& args) {
  MultiplyIntegersOn<Emulated<FourOfSU8>>(layout, args);
}

// Sums are exact, and what follows them is done in the same order.
void ExpectAsScalar(const IntLayout& layout, size_t rows,
                    void (*gemm)(const IntLayout&, const IntGemmArgs&)) {
  SCOPED_TRACE(::testing::Message() << "bits " << layout.bits << ", k " << layout.k << ", group "
                                    << layout.group << ", rows " << rows);
  IntTileProblem p(layout, rows);
  const auto got = p.Run(gemm), want = p.Run(IntTableFor(Isa::kScalar).gemm);
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], std::abs(want[i]) * 0x1p-18 + 1e-4f);
}

TEST(EmulatedTiles, MultiplyIntegerWeightsAsTheScalarTable) {
  for (const IntLayout& layout : kTileLayouts) {
    for (size_t rows : {16, 17, 33, 40, 50, 70}) {
      if (!layout.whole_rows() && rows < 33) continue;
      ASSERT_TRUE(impl::FitsTiles(layout, rows));
      ExpectAsScalar(layout, rows, RunIntEmulated);
    }
  }
  for (const IntLayout& layout : kDeepLayouts) ExpectAsScalar(layout, 130, RunIntEmulated);
}

TEST(EmulatedTiles, AreLeftToVectorsIfGroupsFillNoStepOrRowsAreFew) {
  EXPECT_FALSE(impl::FitsTiles({8, 96, 96, -128, false}, 64));
  EXPECT_FALSE(impl::FitsTiles({4, 96, 32, -8, false}, 64));
  EXPECT_FALSE(impl::FitsTiles({8, 128, 128, -128, false}, 15));
  EXPECT_FALSE(impl::FitsTiles({4, 256, 128, -8, false}, 32));
  EXPECT_TRUE(impl::FitsTiles({4, 256, 128, -8, false}, 33));
}

TEST(AmxTiles, MultiplyIntegerWeightsAsTheScalarTable) {
  const auto& usable = UsableIsas();
  if (std::find(usable.begin(), usable.end(), Isa::kAmx) == usable.end()) {
    GTEST_SKIP() << "this CPU, or what its operating system allows, has no AMX";
  }
  for (const IntLayout& layout : kTileLayouts) {
    for (size_t rows : {3, 16, 17, 33, 40, 50, 70})
      ExpectAsScalar(layout, rows, IntTableFor(Isa::kAmx).gemm);
  }
  for (const IntLayout& layout : kDeepLayouts)
    ExpectAsScalar(layout, 130, IntTableFor(Isa::kAmx).gemm);
}

// The operands end at unmapped pages, and are passed over more than once.
// Whole rows, wider than a panel too; groups that fill panels or not, the last one short; and, with
// 130 rows, more than is kept in L2 at once.
TEST(EmulatedTiles, MultiplyE4m3WithinTheirRoundings) {
  const auto run = [](const IntLayout& layout, size_t rows) {
    ASSERT_TRUE(impl::FitsE4m3Tiles(layout, Dtype::kBf16, rows));
    const E4m3Problem p(layout, rows, 2, Dtype::kBf16);
    const size_t ldy = 2 * kBlockN + 16;
    Guarded<float> y(rows * ldy, 64);
    MultiplyE4m3On<Emulated<PairOfBf16>>(
        layout, {p.x.data(), p.x_type, p.packed.data(), y.data(), rows, 2, ldy});
    p.ExpectWithinRoundings({y.begin(), y.end()}, ldy, "tiles");
  };
  for (const IntLayout& layout : {E4m3Layout(31, 31), E4m3Layout(1100, 1100), E4m3Layout(300, 128),
                                  E4m3Layout(192, 96), E4m3Layout(1300, 256)})
    for (const size_t rows : {16, 17, 32, 50}) run(layout, rows);
  run(E4m3Layout(4200, 128), 130);
}

TEST(EmulatedTiles, LeaveE4m3ToVectorsIfItDoesNotFit) {
  EXPECT_FALSE(impl::FitsE4m3Tiles(E4m3Layout(256, 128), Dtype::kBf16, 15));
  EXPECT_FALSE(impl::FitsE4m3Tiles(E4m3Layout(256, 128), Dtype::kF32, 16));
  EXPECT_FALSE(impl::FitsE4m3Tiles(E4m3Layout(96, 16), Dtype::kBf16, 16));
}

TEST(EmulatedTiles, AreProbedWithinTheirOperands) {
  Guarded<std::byte> a(kTileProbeUnit, 64), b(3 * kTileProbeUnit, 64);
  const auto probe = [&](size_t steps) {
    return impl::ProbeLoadedDots<Emulated<FourOfS8>>(a.data(), a.size(), b.data(), b.size(), steps,
                                                     10);
  };
  EXPECT_EQ(probe(0), 0u);
  EXPECT_EQ(probe(7), 7 * probe(1));
  EXPECT_EQ(impl::ProbeDots<Emulated<FourOfS8>>(3, 10), probe(3));
  EXPECT_FALSE(EmulatedTiles::Now().configured) << "tiles were kept";
  for (const TileProbe& real : TileProbes())
    EXPECT_GT(real.run(a.data(), a.size(), b.data(), b.size(), 7), 0u) << real.name;
}

TEST(TileCut, GivesDeepProductsManyBlocks) {
  EXPECT_EQ(impl::TileCut(512, 64).rows, 256u);
  EXPECT_EQ(impl::TileCut(512, 64).blocks, 1u);  // 256 rows of 2048 bfloat16 are 1 MiB
  EXPECT_GT(impl::TileCut(512, 65).blocks, 1u);
  EXPECT_EQ(impl::TileCut(64, 256).blocks, 1u);
}

TEST(TileStride, SpreadsManyRowsThatShareSetsOfTheCache) {
  EXPECT_EQ(impl::TileStride(512, 64), 64 * 64 + 64u);  // 2048 bfloat16
  EXPECT_EQ(impl::TileStride(33, 32), 32 * 64 + 64u);
  EXPECT_EQ(impl::TileStride(32, 64), 64 * 64u) << "few rows are not worth a copy";
  EXPECT_EQ(impl::TileStride(512, 28), 28 * 64u) << "rows in 16 sets";
  EXPECT_EQ(impl::TileStride(512, 128), 128 * 64 + 64u);  // 128 rows at once if blocks are few
  EXPECT_EQ(impl::TileStride(512, 160), 160 * 64u) << "slices are copied anyway";
}

TEST(ProductParts, CoverAllRowsInUnitsOfTiles) {
  for (size_t rows : {1, 31, 255, 256, 257, 300, 512, 1800, 2049}) {
    const ProductParts parts(rows, 256);
    size_t end = 0;
    for (size_t i = 0; i < parts.count; ++i) {
      EXPECT_EQ(parts.Begin(i), end);
      EXPECT_EQ(end % kCutRows, 0u);
      EXPECT_LE(parts.Size(i), 256u);
      EXPECT_GE(parts.Size(i) + 2 * kCutRows, parts.Size(0)) << rows << ": uneven";
      end += parts.Size(i);
    }
    EXPECT_EQ(end, rows);
    EXPECT_EQ(parts.count, (rows + 255) / 256);
  }
  EXPECT_EQ(ProductParts(100000, ~size_t{0}).Size(0), 100000u);
}

}  // namespace
}  // namespace pinion::kernels::testing
