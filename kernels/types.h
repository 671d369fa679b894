#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pinion::kernels {

// Element types that weights, activations and KV can have.
enum class Dtype : uint8_t { kF32, kBf16, kF16 };
inline constexpr int kDtypeCount = 3;

constexpr size_t SizeOf(Dtype dtype) { return dtype == Dtype::kF32 ? 4 : 2; }
const char* Name(Dtype dtype);  // "float32", "bfloat16", "float16"

// Storage-only types: arithmetic happens in float.
struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

// Conversions, round to nearest even; NaN stays NaN. Portable and slow: for tests and cold paths.
float ToFloat(Bf16 value);
float ToFloat(F16 value);
Bf16 ToBf16(float value);
F16 ToF16(float value);

constexpr size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace pinion::kernels
