#pragma once

// What gemm_panels.inl.h needs of AVX2: the same function as gemm_avx512.inl.h.

#include "kernels/impl/vec_avx2.inl.h"

namespace pinion::kernels::impl {
namespace {

// Fours of lanes, `stride` floats apart; dst and stride are multiples of four floats.
void StoreFours(float* dst, size_t stride, Vec v) {
  _mm_store_ps(dst, _mm256_castps256_ps128(v));
  _mm_store_ps(dst + stride, _mm256_extractf128_ps(v, 1));
}

}  // namespace
}  // namespace pinion::kernels::impl
