#pragma once

// Transposition for packed blocks, with SSE2, which every x86-64 has.

#include <emmintrin.h>

#include "kernels/kernels.h"

namespace pinion::kernels::impl {
namespace {

__m128i LoadFour(const std::byte* p) { return _mm_load_si128(reinterpret_cast<const __m128i*>(p)); }

void StoreFour(std::byte* p, __m128i value) {
  _mm_store_si128(reinterpret_cast<__m128i*>(p), value);
}

// dst[column][64 rows] = tile[row][column], in units of 4 bytes: a float, a pair of bfloat16, four
// or eight integers. Columns come in fours; both are 16-byte aligned.
void TransposeWords(std::byte* dst, const std::byte* tile, size_t row_bytes, size_t columns) {
  for (size_t column = 0; column < columns; column += 4) {
    std::byte* to = dst + column * kBlockN * 4;
    const std::byte* from = tile + column * 4;
    for (size_t row = 0; row < kBlockN; row += 4, from += 4 * row_bytes, to += 16) {
      const __m128i a = LoadFour(from), b = LoadFour(from + row_bytes);
      const __m128i c = LoadFour(from + 2 * row_bytes), d = LoadFour(from + 3 * row_bytes);
      const __m128i ab_low = _mm_unpacklo_epi32(a, b), cd_low = _mm_unpacklo_epi32(c, d);
      const __m128i ab_high = _mm_unpackhi_epi32(a, b), cd_high = _mm_unpackhi_epi32(c, d);
      StoreFour(to, _mm_unpacklo_epi64(ab_low, cd_low));
      StoreFour(to + kBlockN * 4, _mm_unpackhi_epi64(ab_low, cd_low));
      StoreFour(to + kBlockN * 8, _mm_unpacklo_epi64(ab_high, cd_high));
      StoreFour(to + kBlockN * 12, _mm_unpackhi_epi64(ab_high, cd_high));
    }
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
