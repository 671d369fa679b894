#pragma once

// A block of keys or values as kernels.h lays it out, read without the kernels.

#include "tests/kernels/testing.h"

namespace pinion::kernels::testing {

// A block of a plane, read by the layouts of kernels.h.
struct KvBlock {
  const std::byte* block;
  KvDtype dtype;
  size_t block_tokens, dim;

  float Key(size_t slot, size_t d) const {
    return At((d / Group() * block_tokens + slot) * Group() + d % Group()) * Scale(slot);
  }
  float Value(size_t slot, size_t d) const {
    return At((slot / Group() * dim + d) * Group() + slot % Group()) * Scale(slot);
  }
  float Scale(size_t slot) const {
    return IsScaled(dtype) ? Get(block + block_tokens * dim, Dtype::kBf16, slot) : 1;
  }

 private:
  size_t Group() const { return IsScaled(dtype) ? 4 : dtype == KvDtype::kBf16 ? 2 : 1; }
  float At(size_t i) const {
    switch (dtype) {
      case KvDtype::kF32:
        return Get(block, Dtype::kF32, i);
      case KvDtype::kBf16:
        return Get(block, Dtype::kBf16, i);
      case KvDtype::kF16:
        return Get(block, Dtype::kF16, i);
      case KvDtype::kI8:
        return static_cast<float>(static_cast<int8_t>(block[i]));
      case KvDtype::kE5m2:
        return EightBits(block[i], 2, 15);
      case KvDtype::kE4m3:
        return EightBits(block[i], 3, 7);
    }
    return NAN;
  }
  static float EightBits(std::byte code, int mantissa, int bias) {
    const int bits = static_cast<int>(code), exponent = (bits & 0x7f) >> mantissa;
    const int fraction = bits & ((1 << mantissa) - 1);
    EXPECT_TRUE(exponent > 0 || fraction == 0) << "a subnormal number";
    const float magnitude = exponent == 0
                                ? 0
                                : std::ldexp(static_cast<float>((1 << mantissa) + fraction),
                                             exponent - bias - mantissa);
    return bits & 0x80 ? -magnitude : magnitude;
  }
};

}  // namespace pinion::kernels::testing
