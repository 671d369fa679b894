#pragma once

// The largest magnitude of a row. A plain loop, which the compiler turns into vectors.

#include <cstddef>

#include "kernels/impl/half.inl.h"

namespace pinion::kernels::impl {
namespace {

// Of float or Bf16; infinite or NaN if an element is. Compares bits, because NaN and infinity have
// larger ones than every number, while comparisons of floats ignore NaN.
template <typename T>
float LargestMagnitude(const T* x, size_t n) {
  uint32_t largest = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t magnitude = AsBits(Widen(x[i])) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  return AsFloat(largest);
}

}  // namespace
}  // namespace pinion::kernels::impl
