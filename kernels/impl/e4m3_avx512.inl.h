#pragma once

// e4m3 with AVX-512: a shift makes the bits of a float16 that is 2^8 times too small, subnormals
// included, which VCVTPH2PS widens. Include vec_avx512.inl.h first.

#include "kernels/impl/operand.inl.h"

namespace pinion::kernels::impl {
namespace {

struct OperandE4m3 {
  using X = float;
  static constexpr size_t kSubs = 2, kStepBytes = 128, kMostTiles = 1;
  static constexpr float kUnit = 0x1p8f;

  // The words of 32 outputs, a column's byte in each half.
  static __m512i Fetch(const std::byte* w, size_t load) {
    const __m512i places = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    return _mm512_permutexvar_epi64(places, _mm512_loadu_si512(w + 64 * load));
  }
  template <size_t sub>
  static Vec Weights(__m512i words, size_t v) {
    const __m512i upper = sub == 0 ? _mm512_slli_epi16(words, 8) : words;
    // The arithmetic shift copies the sign; the mask clears the copy.
    const __m512i mask = _mm512_set1_epi16(static_cast<int16_t>(0xbf80));
    const __m512i halves = _mm512_and_si512(_mm512_srai_epi16(upper, 1), mask);
    return _mm512_cvtph_ps(v == 0 ? _mm512_castsi512_si256(halves)
                                  : _mm512_extracti64x4_epi64(halves, 1));
  }
  static size_t OutputOf(size_t load, size_t v) { return 32 * load + 16 * v; }
  static Vec Spread(const float* x, size_t sub) { return Set(x[sub]); }
  static Vec MultiplyAdd(Vec w, Vec x, Vec sum) { return Fma(w, x, sum); }
};

}  // namespace
}  // namespace pinion::kernels::impl
