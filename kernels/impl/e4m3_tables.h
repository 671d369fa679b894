#pragma once

#include "kernels/e4m3.h"

namespace pinion::kernels::impl {

extern const E4m3Table kE4m3Scalar, kE4m3Avx2, kE4m3Avx512, kE4m3Avx512Bf16, kE4m3Amx;

// The place of the bytes of columns 2i and 2i + 1 of an output in step i of a block (integer.h).
constexpr size_t kE4m3StepBytes = 2 * kBlockN;
[[gnu::always_inline]] constexpr size_t E4m3Place(size_t output) {
  const size_t within = output % 32, four = within % 16 / 4, odd = within / 16;
  return output / 32 * 64 + (2 * four + odd) * 8 + output % 4 * 2;
}

// PackIntBlock (integer.h) for layouts of e4m3.
void PackE4m3Block(std::byte* dst, const IntLayout& layout, const int8_t* codes,
                   const float* scales, size_t rows);

}  // namespace pinion::kernels::impl
