#pragma once

// bfloat16 with AVX-512's instruction for it, VDPBF16PS. Include vec_avx512.inl.h first.

#include "kernels/impl/operand.inl.h"

namespace pinion::kernels::impl {
namespace {

struct OperandBf16 {
  using X = Bf16;
  static constexpr Dtype kDtype = Dtype::kBf16;
  static constexpr size_t kStepK = 2, kSubs = 1, kBytes = 4;
  // Of a GEMM. A tile of six rows takes 12 clocks or more for a step's 256 bytes, which L2 delivers
  // in 8. On a Zen 5 core 32, 64 and 512 rows took 0.94 to 0.98 of the time of chunks of 32 KiB,
  // and chunks of 256 KiB gained nothing more (pinion-bench
  // --benchmark_filter='gemm/avx512_bf16/bfloat16/.*/(32|64|512)/real_time/threads:1').
  static constexpr size_t kMaxChunkBytes = 128 * 1024;

  template <bool half>
  static Vec Load(const std::byte* w, size_t sub) {
    return LoadWords<half>(w);
  }
  static Vec Spread(const Bf16* x, size_t sub) {
    int pair;
    __builtin_memcpy(&pair, x, sizeof(pair));
    return _mm512_castsi512_ps(_mm512_set1_epi32(pair));
  }
  static Vec MultiplyAdd(Vec w, Vec x, Vec sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
  }
  static void Put(Bf16* x, Vec v) {
    const auto halves = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(x), halves);
  }
};

}  // namespace
}  // namespace pinion::kernels::impl
