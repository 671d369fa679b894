#pragma once

// What gemm_panels.inl.h needs of AVX-512: the same function as gemm_avx2.inl.h.

#include "kernels/impl/vec_avx512.inl.h"

namespace pinion::kernels::impl {
namespace {

// Fours of lanes, `stride` floats apart; dst and stride are multiples of four floats.
void StoreFours(float* dst, size_t stride, Vec v) {
  _mm_store_ps(dst, _mm512_castps512_ps128(v));
  _mm_store_ps(dst + stride, _mm512_extractf32x4_ps(v, 1));
  _mm_store_ps(dst + 2 * stride, _mm512_extractf32x4_ps(v, 2));
  _mm_store_ps(dst + 3 * stride, _mm512_extractf32x4_ps(v, 3));
}

}  // namespace
}  // namespace pinion::kernels::impl
