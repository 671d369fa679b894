#pragma once

// e4m3 with AVX2: as e4m3_avx512.inl.h, for half as many outputs. Include vec_avx2.inl.h first.

#include "kernels/impl/operand.inl.h"

namespace pinion::kernels::impl {
namespace {

struct OperandE4m3 {
  using X = float;
  static constexpr size_t kSubs = 2, kStepBytes = 128, kMostTiles = 1;
  static constexpr float kUnit = 0x1p8f;

  // The words of 16 outputs: 8 from OutputOf(load, 0) on, and 8 that are 16 further on.
  static __m256i Fetch(const std::byte* w, size_t load) {
    const auto* at = reinterpret_cast<const __m256i*>(w + 32 * load);
    return _mm256_permute4x64_epi64(_mm256_loadu_si256(at), 0xd8);
  }
  template <size_t sub>
  static Vec Weights(__m256i words, size_t v) {
    const __m256i upper = sub == 0 ? _mm256_slli_epi16(words, 8) : words;
    const __m256i mask = _mm256_set1_epi16(static_cast<int16_t>(0xbf80));
    const __m256i halves = _mm256_and_si256(_mm256_srai_epi16(upper, 1), mask);
    return _mm256_cvtph_ps(v == 0 ? _mm256_castsi256_si128(halves)
                                  : _mm256_extracti128_si256(halves, 1));
  }
  static size_t OutputOf(size_t load, size_t v) {
    return 32 * (load / 2) + 8 * (load % 2) + 16 * v;
  }
  static Vec Spread(const float* x, size_t sub) { return Set(x[sub]); }
  static Vec MultiplyAdd(Vec w, Vec x, Vec sum) { return Fma(w, x, sum); }
};

}  // namespace
}  // namespace pinion::kernels::impl
