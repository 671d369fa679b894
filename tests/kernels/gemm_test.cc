#include "tests/kernels/testing.h"

namespace pinion::kernels::testing {
namespace {

using GemmFn = void (*)(const GemmArgs&);

GemmFn Kernel(const Table& table, Dtype weights) {
  return weights == Dtype::kF32    ? table.gemm_f32
         : weights == Dtype::kBf16 ? table.gemm_bf16
                                   : table.gemm_f16;
}

// One multiplication: random operands already rounded to their storage types, the exact product and
// the sum of magnitudes in double.
struct Problem {
  size_t rows, k, k_padded, blocks;
  Dtype weights;
  Guarded<std::byte> x, w;
  std::vector<double> exact, magnitude;  // [rows][blocks * 64]

  Problem(size_t rows, size_t k, size_t blocks, Dtype weights)
      : rows(rows),
        k(k),
        k_padded(RoundUp(k, kPadK)),
        blocks(blocks),
        weights(weights),
        x(rows * k_padded * SizeOf(ActivationType(weights)), 64),
        w(blocks * PackedBlockBytes(weights, k), 64),
        exact(rows * blocks * 64),
        magnitude(exact.size()) {
    const size_t n = blocks * 64;
    const Dtype x_type = ActivationType(weights);
    const std::vector<float> x_values = Normal(rows * k, 1), w_values = Normal(n * k, 2);
    std::memset(x.data(), 0, x.size());
    std::vector<std::byte> rounded(n * k * SizeOf(weights));
    for (size_t i = 0; i < n * k; ++i) Set(rounded.data(), weights, i, w_values[i]);
    for (size_t block = 0; block < blocks; ++block) {
      PackBlock(w.data() + block * PackedBlockBytes(weights, k), weights,
                rounded.data() + block * 64 * k * SizeOf(weights), weights, k, 64, k);
    }
    std::vector<double> x_row(k), w_all(n * k);
    for (size_t i = 0; i < n * k; ++i) w_all[i] = Get(rounded.data(), weights, i);
    for (size_t row = 0; row < rows; ++row) {
      for (size_t i = 0; i < k; ++i) {
        Set(x.data(), x_type, row * k_padded + i, x_values[row * k + i]);
        x_row[i] = Get(x.data(), x_type, row * k_padded + i);
      }
      for (size_t j = 0; j < n; ++j) {
        for (size_t i = 0; i < k; ++i) {
          const double product = x_row[i] * w_all[j * k + i];
          exact[row * n + j] += product;
          magnitude[row * n + j] += std::abs(product);
        }
      }
    }
  }

  // Summing k products in any order, each operation rounded to float32, errs by at most
  // (k + 1) u sum|x w| to first order (Higham, Accuracy and Stability, 2002, eq. 3.5); 1 % covers
  // the rest of the series. Products of bfloat16 are exact in float32, so this holds for them too.
  double Bound(size_t i) const {
    return 1.01 * static_cast<double>(k + 1) * 0x1p-24 * magnitude[i];
  }
};

void Check(const Problem& p, Guarded<float>& y, size_t ldy) {
  const size_t n = p.blocks * 64;
  for (size_t row = 0; row < p.rows; ++row) {
    for (size_t j = 0; j < n; ++j) {
      const size_t i = row * n + j;
      ASSERT_NEAR(y[row * ldy + j], p.exact[i], p.Bound(i)) << "row " << row << ", column " << j;
    }
  }
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

INSTANTIATE_TEST_SUITE_P(AllIsas, GemmTest, ::testing::ValuesIn(UsableIsas()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace pinion::kernels::testing
