#pragma once

// Portable conversions of bfloat16 and float16. `static`, because files compiled for one ISA
// include this too and must not share an external inline symbol with the rest of the program.

#include <cstdint>
#include <cstring>

#include "kernels/types.h"

namespace pinion::kernels::impl {

[[gnu::always_inline]] static inline float AsFloat(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

[[gnu::always_inline]] static inline uint32_t AsBits(float value) {
  return __builtin_bit_cast(uint32_t, value);
}

[[gnu::always_inline]] static inline float Widen(Bf16 value) {
  return AsFloat(static_cast<uint32_t>(value.bits) << 16);
}

// Selects between the three classes (subnormal; normal; infinity and NaN) without branches, so that
// loops vectorise.
[[gnu::always_inline]] static inline float Widen(F16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000) << 16;
  const uint32_t magnitude = value.bits & 0x7fff;
  const uint32_t tiny = AsBits(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t normal = (magnitude << 13) + ((127u - 15u) << 23);
  const uint32_t special = (magnitude << 13) | 0x7f800000u;
  uint32_t bits = magnitude < 0x0400 ? tiny : normal;
  bits = magnitude >= 0x7c00 ? special : bits;
  return AsFloat(sign | bits);
}

// Shifted, these are the bits of a float16 that is 2^8 times too small, subnormals included.
[[gnu::always_inline]] static inline float Widen(E4m3 value) {
  if ((value.bits & 0x7f) == 0x7f) return __builtin_nanf("");
  const uint32_t half =
      static_cast<uint32_t>(value.bits & 0x80) << 8 | static_cast<uint32_t>(value.bits & 0x7f) << 7;
  return Widen(F16{static_cast<uint16_t>(half)}) * 0x1p8f;
}

[[gnu::always_inline]] static inline float Widen(float value) { return value; }

// Rounds by adding half a unit in the last place minus one, plus the last bit kept: ties go to
// even.
[[gnu::always_inline]] static inline Bf16 NarrowBf16(float value) {
  const uint32_t bits = AsBits(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40u;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return Bf16{static_cast<uint16_t>(is_nan ? quiet_nan : rounded)};
}

// Below 2^-14, adding 0.5 makes the float adder itself round to a multiple of 2^-24, float16's
// subnormal step.
[[gnu::always_inline]] static inline F16 NarrowF16(float value) {
  const uint32_t bits = AsBits(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t tiny =
      AsBits(AsFloat(magnitude < 0x38800000u ? magnitude : 0u) + 0.5f) - 0x3f000000u;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  uint32_t half = magnitude < 0x38800000u ? tiny : normal;  // below 2^-14
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;         // 65520 and up round to infinity
  half = magnitude > 0x7f800000u ? 0x7e00u | ((magnitude >> 13) & 0x3ffu) : half;
  return F16{static_cast<uint16_t>(sign | half)};
}

[[gnu::always_inline]] static inline void Narrow(float value, float& dst) { dst = value; }
[[gnu::always_inline]] static inline void Narrow(float value, Bf16& dst) {
  dst = NarrowBf16(value);
}
[[gnu::always_inline]] static inline void Narrow(float value, F16& dst) { dst = NarrowF16(value); }

}  // namespace pinion::kernels::impl
