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

// Element types of the KV cache: Dtype's, and bytes that share one scale per head and token.
//   int8      -127 .. 127
//   fp8_e5m2  1 sign, 5 exponent, 2 mantissa bits, bias 15, up to 57344
//   fp8_e4m3  1 sign, 4 exponent, 3 mantissa bits, bias 7, up to 448 (no infinities)
// The eight-bit floats (Micikevicius et al., arXiv:2209.05433) hold normal numbers and zero only:
// with the scale, subnormals would be below 2^-14 of a head's largest element, and instructions for
// bfloat16 would read them as zero.
enum class KvDtype : uint8_t { kF32, kBf16, kF16, kI8, kE5m2, kE4m3 };
inline constexpr KvDtype kKvDtypes[] = {KvDtype::kF32, KvDtype::kBf16, KvDtype::kF16,
                                        KvDtype::kI8,  KvDtype::kE5m2, KvDtype::kE4m3};

constexpr KvDtype KvDtypeOf(Dtype dtype) {
  return dtype == Dtype::kF32    ? KvDtype::kF32
         : dtype == Dtype::kBf16 ? KvDtype::kBf16
                                 : KvDtype::kF16;
}
constexpr bool IsScaled(KvDtype dtype) { return dtype >= KvDtype::kI8; }
constexpr size_t SizeOf(KvDtype dtype) {
  return dtype == KvDtype::kF32 ? 4 : IsScaled(dtype) ? 1 : 2;
}
const char* Name(KvDtype dtype);  // as Dtype's, "int8", "fp8_e5m2", "fp8_e4m3"

// Storage-only types: arithmetic happens in float.
struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
// 1 sign, 4 exponent and 3 mantissa bits, bias 7, with subnormals; 0x7f and 0xff are NaN, and there
// are no infinities (arXiv:2209.05433).
struct E4m3 {
  uint8_t bits;
};
inline constexpr float kLargestE4m3 = 448;

// How the scales of integer weights in groups are stored (integer.h). Those of 8 bits belong to
// codes of e2m1: kPower to MXFP4's, kE4m3 to NVFP4's.
enum class ScaleType : uint8_t { kF16, kPower, kE4m3 };

// Conversions, round to nearest even; NaN stays NaN. Portable and slow: for tests and cold paths.
float ToFloat(Bf16 value);
float ToFloat(F16 value);
float ToFloat(E4m3 value);
Bf16 ToBf16(float value);
F16 ToF16(float value);
E4m3 ToE4m3(float value);  // beyond the largest: that

constexpr size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace pinion::kernels
