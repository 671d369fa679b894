#pragma once

// Products with integer weights, for the tests of any table.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/integer.h"
#include "tests/kernels/testing.h"

namespace pinion::kernels::testing {
namespace {

// One multiplication with random codes, scales and activations.
struct IntProblem {
  IntLayout layout;
  size_t rows, blocks;
  std::vector<int8_t> codes;           // [blocks * 64][k]
  std::vector<float> scales, offsets;  // [blocks * 64][groups]
  std::vector<float> units;            // [blocks * 64]
  std::vector<float> x;                // [rows][k]
  Guarded<std::byte> packed;

  IntProblem(const IntLayout& layout, size_t rows, size_t blocks)
      : layout(layout),
        rows(rows),
        blocks(blocks),
        codes(blocks * 64 * layout.k),
        scales(blocks * 64 * layout.groups()),
        offsets(scales.size()),
        units(blocks * 64, 1.0f),
        x(Normal(rows * layout.k, 1)),
        packed(blocks * layout.block_bytes(), 64) {
    std::mt19937 rng(7);
    const int count = std::min(1 << layout.bits, 128 - layout.lowest);
    for (int8_t& code : codes)
      code = static_cast<int8_t>(layout.lowest + static_cast<int>(rng() % 256) % count);
    for (float& scale : scales) scale = 0.001f * static_cast<float>(1 + rng() % 100);
    if (layout.e2m1()) MakeE2M1(rng);
    for (float& offset : offsets)
      offset = layout.has_offsets ? 0.01f * static_cast<float>(rng() % 100) - 0.5f : 0;
    Pack();
  }

  // The doubled values of e2m1, and powers of two or numbers of e4m3 in units of 20 bits, of which
  // float32 holds the products.
  void MakeE2M1(std::mt19937& rng) {
    constexpr int kMagnitudes[] = {0, 1, 2, 3, 4, 6, 8, 12};
    for (int8_t& code : codes)
      code = static_cast<int8_t>(kMagnitudes[rng() % 8] * (rng() % 2 == 0 ? 1 : -1));
    for (float& scale : scales) scale = std::ldexp(1.0f, -static_cast<int>(rng() % 20));
    if (layout.scale_type != ScaleType::kE4m3) return;
    for (float& unit : units) unit = std::ldexp(static_cast<float>(1 + rng() % (1 << 20)), -28);
    for (size_t i = 0; i < scales.size(); ++i)
      scales[i] = ToFloat(E4m3{static_cast<uint8_t>(rng() % 127)}) * units[i / layout.groups()];
  }

  void Pack() {
    for (size_t block = 0; block < blocks; ++block)
      PackIntBlock(packed.data() + block * layout.block_bytes(), layout,
                   codes.data() + block * 64 * layout.k,
                   scales.data() + block * 64 * layout.groups(),
                   offsets.data() + block * 64 * layout.groups(), 64, units.data() + block * 64);
  }

  std::vector<std::byte> Rounded(const IntTable& table, const Rounding& rounding) const {
    std::vector<std::byte> rounded(rows * layout.row_bytes());
    for (size_t row = 0; row < rows; ++row)
      table.round(layout, {rounded.data() + row * layout.row_bytes(), x.data() + row * layout.k,
                           Dtype::kF32, rounding});
    return rounded;
  }

  double Weight(size_t n, size_t k) const {
    const size_t group = n * layout.groups() + k / layout.group;
    return double{scales[group]} * codes[n * layout.k + k] + offsets[group];
  }
};

// Rows as the contract describes them, in 64-byte aligned memory that ends at a guard page.
struct AlignedRows {
  Guarded<std::byte> bytes;
  explicit AlignedRows(const std::vector<std::byte>& rows) : bytes(rows.size(), 64) {
    std::copy(rows.begin(), rows.end(), bytes.begin());
  }
};

std::vector<float> Multiply(const IntTable& table, const IntProblem& p,
                            const std::vector<std::byte>& x, Prefetch prefetch = Prefetch::kNear) {
  const AlignedRows rows(x);
  const size_t n = p.blocks * 64, ldy = n + 16;
  Guarded<float> y((p.rows - 1) * ldy + n, 64);
  for (float& v : y) v = 1e30f;  // the kernel must overwrite, not add
  table.gemm(p.layout,
             {rows.bytes.data(), p.packed.data(), y.data(), p.rows, p.blocks, ldy, prefetch});
  std::vector<float> result;
  for (size_t row = 0; row < p.rows; ++row)
    for (size_t j = 0; j < n; ++j) result.push_back(y[row * ldy + j]);
  for (size_t row = 0; row + 1 < p.rows; ++row)
    for (size_t j = n; j < ldy; ++j) EXPECT_EQ(y[row * ldy + j], 1e30f) << "wrote between rows";
  return result;
}

// Whether e2m1 is summed in float32 over all columns (integer.h), which rounds.
inline bool SumsFloats(Isa isa, const IntLayout& layout, size_t rows) {
  return isa == Isa::kAmx && layout.e2m1() && layout.columns() % 32 == 0 && rows > 32;
}

// Sums of exact products are rounded at each addition, and twice when they are scaled. x: rounded
// rows without outliers; y: [rows][ldy].
inline void ExpectWithinSums(const IntProblem& p, const std::byte* x, const float* y, size_t ldy) {
  const IntLayout& layout = p.layout;
  for (size_t row = 0; row < p.rows; ++row) {
    const std::byte* q = x + row * layout.row_bytes();
    float scale;
    std::memcpy(&scale, q + layout.columns(), sizeof(scale));
    for (size_t n = 0; n < p.blocks * kBlockN; ++n) {
      double exact = 0, magnitude = 0;
      for (size_t k = 0; k < layout.k; ++k) {
        const double term = double{scale} * static_cast<int8_t>(q[k]) * p.Weight(n, k);
        exact += term;
        magnitude += std::abs(term);
      }
      ASSERT_NEAR(y[row * ldy + n], exact, magnitude * static_cast<double>(layout.k + 2) * 0x1p-24)
          << "row " << row << ", output " << n;
    }
  }
}

}  // namespace
}  // namespace pinion::kernels::testing
