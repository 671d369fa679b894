#pragma once

#include "tests/kernels/testing.h"

namespace pinion::kernels::testing {

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

  // Copies x so that `gap` elements, which are not numbers, are between rows.
  size_t SpreadBytes(size_t gap) const {
    return ((rows - 1) * (k_padded + gap) + k_padded) * SizeOf(ActivationType(weights));
  }
  void Spread(size_t gap, Guarded<std::byte>& to) const {
    const size_t element = SizeOf(ActivationType(weights));
    std::memset(to.data(), 0xff, to.size());
    for (size_t row = 0; row < rows; ++row)
      std::memcpy(to.data() + row * (k_padded + gap) * element, x.data() + row * k_padded * element,
                  k_padded * element);
  }

  // Summing k products in any order, each operation rounded to float32, errs by at most
  // (k + 1) u sum|x w| to first order (Higham, Accuracy and Stability, 2002, eq. 3.5); 1 % covers
  // the rest of the series. Products of bfloat16 are exact in float32, so this holds for them too.
  double Bound(size_t i) const {
    return 1.01 * static_cast<double>(k + 1) * 0x1p-24 * magnitude[i];
  }
};

inline void Check(const Problem& p, const Guarded<float>& y, size_t ldy) {
  const size_t n = p.blocks * 64;
  for (size_t row = 0; row < p.rows; ++row) {
    for (size_t j = 0; j < n; ++j) {
      const size_t i = row * n + j;
      ASSERT_NEAR(y[row * ldy + j], p.exact[i], p.Bound(i)) << "row " << row << ", column " << j;
    }
  }
}

}  // namespace pinion::kernels::testing
