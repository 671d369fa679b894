#pragma once

// The products that kAmx computes on tiles, on any tile operations: the passes of tile_gemm.inl.h,
// int_tiles.inl.h, e2m1_tiles.inl.h and e4m3_tiles.inl.h as the ISA files instantiate them, with
// plain C++ beside them.

#include <cmath>

#include "kernels/impl/e2m1_tiles.inl.h"
#include "kernels/impl/e4m3_tables.h"
#include "kernels/impl/e4m3_tiles.inl.h"
#include "kernels/impl/int_tiles.inl.h"
#include "kernels/integer.h"
#include "tests/kernels/emulated_tiles.h"

namespace pinion::kernels::testing {
namespace {

struct FourOfSU8 {
  using Sum = int32_t;
  static int32_t Product(const std::byte* a, const std::byte* b) {
    int32_t sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<int8_t>(a[i]) * static_cast<uint8_t>(b[i]);
    return sum;
  }
};

// The vector operations that int_tiles.inl.h asks for, in plain C++, in the terms of IntLayout.
struct PlainVectors {
  static void Unpack(const std::byte* src, std::byte* low, std::byte* high) {
    for (size_t i = 0; i < 64; ++i) {
      low[i] = src[i] & std::byte{15};
      high[i] = src[i] >> 4;
    }
  }
  static int32_t Sum(const float* sums, size_t n) {
    int32_t sum;
    std::memcpy(&sum, sums + n, sizeof(sum));
    return sum;
  }
  static void WholeRow(const IntLayout& layout, const std::byte* row, const std::byte* tail,
                       const float* sums, float* y) {
    float row_scale;
    int32_t zero_point, x_sum;
    std::memcpy(&row_scale, row + layout.columns(), 4);
    std::memcpy(&zero_point, row + layout.columns() + 4, 4);
    std::memcpy(&x_sum, row + layout.columns() + 8, 4);
    for (size_t n = 0; n < kBlockN; ++n) {
      float scale;
      int32_t codes;
      std::memcpy(&scale, tail + n * 4, 4);
      std::memcpy(&codes, tail + (kBlockN + n) * 4, 4);
      const int32_t sum = Sum(sums, n) + layout.lowest * x_sum - codes * zero_point;
      y[n] = static_cast<float>(sum) * scale * row_scale;
    }
  }
  static void AddGroup(const IntLayout& layout, const std::byte* scales,
                       const impl::GroupSums& sums, size_t row, size_t rows,
                       float (*totals)[kBlockN]) {
    for (; rows > 0; --rows, ++row) {
      const int32_t x_sum = sums.x_sums[row];
      for (size_t i = 0; i < sums.outputs; ++i) {
        const size_t n = sums.output + i;
        int32_t sum = Sum(sums.sums + row * sums.outputs, i);
        if (!layout.has_offsets) sum += layout.lowest * x_sum;
        totals[row][n] += static_cast<float>(sum) * Half(scales, n);
        if (layout.has_offsets)
          totals[row][n] += Half(scales, kBlockN + n) * static_cast<float>(x_sum);
      }
    }
  }
  static float Half(const std::byte* scales, size_t index) {
    F16 half;
    std::memcpy(&half, scales + index * sizeof(half), sizeof(half));
    return ToFloat(half);
  }
  // A scale of e2m1.
  static float ScaleOfByte(ScaleType type, std::byte byte) {
    if (type == ScaleType::kE4m3) return ToFloat(E4m3{std::to_integer<uint8_t>(byte)}) * 0x1p-8f;
    const int exponent = std::to_integer<int>(byte);
    return exponent == 0 ? 0 : std::ldexp(1.0f, exponent - 127);
  }
  // Twice the value of a nibble.
  static float DoubledE2M1(int nibble) {
    constexpr float kDoubled[] = {0, 1, 2, 3, 4, 6, 8, 12};
    return nibble < 8 ? kDoubled[nibble] : -kDoubled[nibble - 8];
  }
  static float Weight(const IntLayout& layout, const std::byte* block, size_t n, size_t k) {
    const size_t width = layout.whole_rows() ? layout.k_padded() : layout.group;
    const auto in_word = static_cast<size_t>(32 / layout.bits);
    const std::byte* group = block + k / width * layout.group_bytes();
    const size_t column = k % width, place = column % in_word;
    const int byte = std::to_integer<int>(group[(column / in_word * kBlockN + n) * 4 + place % 4]);
    const int code = layout.bits == 8 ? byte : byte >> place / 4 * 4 & 15;
    float own;
    std::memcpy(&own, block + layout.groups() * layout.group_bytes() + n * 4, 4);
    const auto lowest = static_cast<float>(layout.lowest);
    if (layout.whole_rows()) return own * (static_cast<float>(code) + lowest);
    if (layout.e2m1())
      return own * ScaleOfByte(layout.scale_type, group[layout.code_bytes(width) + n]) *
             DoubledE2M1(code);
    F16 scale, offset;
    std::memcpy(&scale, group + layout.code_bytes(width) + n * 2, 2);
    if (!layout.has_offsets) return own * ToFloat(scale) * (static_cast<float>(code) + lowest);
    std::memcpy(&offset, group + layout.code_bytes(width) + (kBlockN + n) * 2, 2);
    return own * std::fma(static_cast<float>(code), ToFloat(scale), ToFloat(offset));
  }
  static void AddOutliers(const IntLayout& layout, const std::byte* x, size_t rows,
                          const std::byte* block, float* y, size_t ldy) {
    if (layout.outliers == 0) return;
    for (size_t row = 0; row < rows; ++row, x += layout.row_bytes(), y += ldy) {
      uint32_t count;
      std::memcpy(&count, x + layout.outliers_at(), sizeof(count));
      for (uint32_t i = 0; i < count; ++i) {
        Outlier outlier;
        std::memcpy(&outlier, x + layout.outliers_at() + 4 + i * sizeof(outlier), sizeof(outlier));
        for (size_t n = 0; n < kBlockN; ++n)
          y[n] = std::fma(Weight(layout, block, n, outlier.column), outlier.value, y[n]);
      }
    }
  }
  static void ScaleRow(float row_scale, const float* scales, const float* sums, float* y) {
    for (size_t n = 0; n < kBlockN; ++n) y[n] = sums[n] * scales[n] * row_scale;
  }
};

// The operations that e2m1_tiles.inl.h asks for besides.
struct PlainE2m1Vectors : PlainVectors {
  static void WidenStep(const std::byte* x, std::byte* dst) {
    for (size_t i = 0; i < 32; ++i) {
      const auto code = static_cast<int8_t>(x[i / 8 * 8 + impl::kE2m1Order[i % 8]]);
      Put(static_cast<float>(code), dst + i * 2);
    }
  }
  template <size_t kWords>
  static void WidenWords(ScaleType type, const std::byte* codes, const std::byte* scales,
                         std::byte* dst) {
    for (size_t n = 0; n < 16; ++n) {
      for (size_t i = 0; i < 8 * kWords; ++i) {
        const size_t place = impl::kE2m1Order[i % 8];
        const std::byte byte = codes[i / 8 * kBlockN * 4 + n * 4 + place % 4];
        const int nibble = std::to_integer<int>(byte) >> place / 4 * 4 & 15;
        Put(DoubledE2M1(nibble) * ScaleOfByte(type, scales[n]),
            dst + (i / 2 * 16 + n) * 4 + i % 2 * 2);
      }
    }
  }
  static void Put(float value, std::byte* dst) {
    const Bf16 exact = ToBf16(value);
    std::memcpy(dst, &exact, sizeof(exact));
  }
};

template <typename Tiles>
void MultiplyBf16On(const GemmArgs& args) {
  impl::TileGemm<Tiles>({.x = static_cast<const std::byte*>(args.x),
                         .x_stride = args.row_stride() * 2,
                         .w = args.w,
                         .w_stride = args.k_padded * 64 * 2,
                         .y = reinterpret_cast<std::byte*>(args.y),
                         .y_stride = args.ldy * 4,
                         .rows = args.rows,
                         .steps = args.k_padded / 32,
                         .blocks = args.blocks});
}

// The steps of e4m3_tiles.inl.h in plain C++.
struct PlainSteps {
  static void Convert(const std::byte* w, size_t columns, std::byte* dst) {
    for (size_t k = 0; k < columns; ++k) {
      for (size_t n = 0; n < kBlockN; ++n) {
        const std::byte code = w[k / 2 * impl::kE4m3StepBytes + impl::E4m3Place(n) + k % 2];
        const Bf16 value = ToBf16(ToFloat(E4m3{static_cast<uint8_t>(code)}));
        std::memcpy(dst + (k / 2 * kBlockN + n) * 4 + k % 2 * 2, &value, sizeof(value));
      }
    }
  }
  static void Add(const float (*sums)[kBlockN], const float* scales, size_t rows, float* y,
                  size_t ldy, bool accumulate) {
    for (size_t row = 0; row < rows; ++row)
      for (size_t n = 0; n < kBlockN; ++n)
        y[row * ldy + n] = sums[row][n] * scales[n] + (accumulate ? y[row * ldy + n] : 0);
  }
};

// Requires FitsE4m3Tiles.
template <typename Tiles>
void MultiplyE4m3On(const IntLayout& layout, const E4m3GemmArgs& args) {
  impl::E4m3TileGemm<Tiles, PlainSteps>(layout, args);
}

// Requires FitsTiles.
template <typename Tiles>
void MultiplyIntegersOn(const IntLayout& layout, const IntGemmArgs& args) {
  impl::IntTileGemm<Tiles, PlainVectors>(layout, args);
}

// Requires FitsE2m1Tiles.
template <typename Tiles>
void MultiplyE2m1On(const IntLayout& layout, const IntGemmArgs& args) {
  impl::E2m1TileGemm<Tiles, PlainE2m1Vectors>(layout, args);
}

}  // namespace
}  // namespace pinion::kernels::testing
