#pragma once

// Products with weights in e4m3, for the tests of any table.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/e4m3.h"
#include "tests/kernels/testing.h"

namespace pinion::kernels::testing {
namespace {

inline IntLayout E4m3Layout(size_t k, size_t group) {
  IntLayout layout{8, k, group, 0, false};
  layout.e4m3 = true;
  return layout;
}

inline bool IsNan(int8_t code) { return (code & 0x7f) == 0x7f; }
inline double ValueOf(int8_t code) { return ToFloat(E4m3{static_cast<uint8_t>(code)}); }

// One multiplication with random bytes, scales and activations.
struct E4m3Problem {
  IntLayout layout;
  size_t rows, blocks;
  std::vector<int8_t> codes;  // [blocks * 64][k]
  std::vector<float> scales;  // [blocks * 64][groups]
  Dtype x_type;
  Guarded<std::byte> x, packed;  // x: [rows][k_padded]

  E4m3Problem(const IntLayout& layout, size_t rows, size_t blocks, Dtype x_type)
      : layout(layout),
        rows(rows),
        blocks(blocks),
        codes(blocks * 64 * layout.k),
        scales(blocks * 64 * layout.groups()),
        x_type(x_type),
        x(rows * layout.k_padded() * SizeOf(x_type), 64),
        packed(blocks * layout.block_bytes(), 64) {
    std::mt19937 rng(7);
    for (int8_t& code : codes) {
      do code = static_cast<int8_t>(rng() & 0xff);
      while (IsNan(code));
    }
    for (float& scale : scales) scale = 0.001f * static_cast<float>(1 + rng() % 100);
    FillX(Normal(rows * layout.k, 1));
    Pack();
  }

  void FillX(const std::vector<float>& values) {
    std::memset(x.data(), 0, x.size());
    for (size_t row = 0; row < rows; ++row)
      for (size_t k = 0; k < layout.k; ++k) {
        std::byte* at = x.data() + (row * layout.k_padded() + k) * SizeOf(x_type);
        const float value = values[row * layout.k + k];
        const Bf16 narrow = ToBf16(value);
        x_type == Dtype::kF32 ? std::memcpy(at, &value, 4) : std::memcpy(at, &narrow, 2);
      }
  }
  void Pack() {
    const std::vector<float> offsets(scales.size());
    for (size_t block = 0; block < blocks; ++block)
      PackIntBlock(packed.data() + block * layout.block_bytes(), layout,
                   codes.data() + block * 64 * layout.k,
                   scales.data() + block * 64 * layout.groups(), offsets.data(), 64);
  }

  // Every product is within its roundings: products of e4m3 with bfloat16 or float32 are rounded at
  // most once, every addition once; so is the product with the scale, of at most k / 16 pieces.
  void ExpectWithinRoundings(const std::vector<float>& y, size_t ldy, const char* what) const {
    const double unit = 0x1p-24 * static_cast<double>(3 * layout.k + 4);
    for (size_t row = 0; row < rows; ++row) {
      for (size_t n = 0; n < blocks * kBlockN; ++n) {
        double exact = 0, magnitude = 0;
        for (size_t k = 0; k < layout.k; ++k) {
          const double term = ValueOf(codes[n * layout.k + k]) *
                              scales[n * layout.groups() + k / layout.group] *
                              Get(x.data(), x_type, row * layout.k_padded() + k);
          exact += term;
          magnitude += std::abs(term);
        }
        ASSERT_NEAR(y[row * ldy + n], exact, unit * magnitude)
            << what << ": k " << layout.k << ", group " << layout.group << ", " << Name(x_type)
            << ", row " << row << " of " << rows << ", output " << n;
      }
    }
  }
};

}  // namespace
}  // namespace pinion::kernels::testing
