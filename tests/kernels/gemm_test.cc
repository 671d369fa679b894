#include "tests/kernels/gemm_problem.h"

namespace pinion::kernels::testing {
namespace {

using GemmFn = void (*)(const GemmArgs&);

GemmFn Kernel(const Table& table, Dtype weights) {
  return weights == Dtype::kF32    ? table.gemm_f32
         : weights == Dtype::kBf16 ? table.gemm_bf16
                                   : table.gemm_f16;
}

void RunAndCheck(const Table& table, const Problem& p, size_t extra_columns) {
  SCOPED_TRACE(::testing::Message()
               << Name(table.isa) << " " << Name(p.weights) << ", rows " << p.rows << ", k " << p.k
               << ", blocks " << p.blocks << ", extra columns " << extra_columns);
  const size_t n = p.blocks * 64, ldy = n + extra_columns;
  Guarded<float> y((p.rows - 1) * ldy + n, 64);
  for (float& v : y) v = 1e30f;  // the kernel must overwrite, not add
  Kernel(table, p.weights)({p.x.data(), p.w.data(), y.data(), p.rows, p.k_padded, p.blocks, ldy});
  Check(p, y, ldy);
  for (size_t row = 0; row + 1 < p.rows; ++row) {
    for (size_t j = n; j < ldy; ++j) ASSERT_EQ(y[row * ldy + j], 1e30f) << "wrote between rows";
  }
}

class GemmTest : public ::testing::TestWithParam<Isa> {};

TEST_P(GemmTest, EveryNumberOfRowsIsWithinTheSummationBound) {
  for (Dtype weights : kDtypes) {
    for (size_t rows = 1; rows <= 70; ++rows) {
      RunAndCheck(TableFor(GetParam()), Problem(rows, 96, 2, weights), rows % 3 * 16);
    }
  }
}

TEST_P(GemmTest, EveryDepthAndBlockCountIsWithinTheSummationBound) {
  for (Dtype weights : kDtypes) {
    for (size_t rows : {1, 3, 13}) {
      for (size_t k : {1, 31, 32, 96, 160, 2048}) {
        for (size_t blocks = 1; blocks <= 5; blocks += k == 2048 ? 4 : 1) {
          RunAndCheck(TableFor(GetParam()), Problem(rows, k, blocks, weights), 0);
        }
      }
    }
  }
}

// Deep enough that a kernel which cuts K to stay inside L2 cuts it more than once.
TEST_P(GemmTest, DepthsBeyondTheCacheAreWithinTheSummationBound) {
  for (Dtype weights : kDtypes) {
    for (size_t rows : {1, 33}) {
      RunAndCheck(TableFor(GetParam()), Problem(rows, 11040, 1, weights), 16);
    }
  }
}

// Kernels may pack the rows of such calls, and cut them and K.
TEST_P(GemmTest, ManyRowsOfSeveralBlocksAreWithinTheSummationBound) {
  for (Dtype weights : kDtypes) {
    for (size_t rows : {19, 20, 25, 39, 40, 257}) {
      for (size_t k : {32, 300, 1568}) {
        if (rows > 40 && k > 300) continue;  // the scalar product would take long
        RunAndCheck(TableFor(GetParam()), Problem(rows, k, 4, weights), 16);
      }
    }
  }
}

// How rows and blocks are divided into calls changes no bit. The rows and columns are so many that
// a kernel which packs rows cuts columns.
TEST_P(GemmTest, AnyCutOfAProductGivesTheSameBits) {
  for (Dtype weights : kDtypes) {
    const size_t rows = 128, blocks = 5, n = blocks * kBlockN;
    const Problem p(rows, 1100, blocks, weights);
    const size_t row_bytes = p.k_padded * SizeOf(ActivationType(weights));
    std::vector<float> want(rows * n + 16), got(want);
    const auto aligned = [](std::vector<float>& y) {
      return y.data() + (64 - reinterpret_cast<uintptr_t>(y.data()) % 64) % 64 / sizeof(float);
    };
    Kernel(TableFor(GetParam()),
           weights)({p.x.data(), p.w.data(), aligned(want), rows, p.k_padded, blocks, n});
    for (const auto& [part, call] : {std::pair<size_t, size_t>{rows, 1}, {7, 5}, {32, 4}, {1, 2}}) {
      std::fill(got.begin(), got.end(), 0.0f);
      for (size_t row = 0; row < rows; row += part) {
        for (size_t block = 0; block < blocks; block += call)
          Kernel(TableFor(GetParam()), weights)(
              {p.x.data() + row * row_bytes, p.w.data() + block * PackedBlockBytes(weights, p.k),
               aligned(got) + row * n + block * kBlockN, std::min(part, rows - row), p.k_padded,
               std::min(call, blocks - block), n});
      }
      ASSERT_EQ(std::memcmp(aligned(got), aligned(want), rows * n * sizeof(float)), 0)
          << Name(weights) << ", parts of " << part << " rows, calls of " << call << " blocks";
    }
  }
}

// By every kernel that may be chosen, oneDNN's apart (onednn_test.cc).
TEST_P(GemmTest, RowsMayLieApart) {
  constexpr size_t kGap = 32;
  for (Dtype weights : kDtypes) {
    for (size_t rows : {1, 5, 16, 17, 40, 70}) {
      const Problem p(rows, 160, 2, weights);
      Guarded<std::byte> x(p.SpreadBytes(kGap), 64);
      p.Spread(kGap, x);
      Guarded<float> y(rows * 128, 64);
      GemmArgs args{x.data(), p.w.data(), y.data(), rows, p.k_padded, 2, 128};
      args.x_stride = p.k_padded + kGap;
      Kernel(TableFor(GetParam()), weights)(args);
      Check(p, y, 128);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllIsas, GemmTest, ::testing::ValuesIn(UsableIsas()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace pinion::kernels::testing
