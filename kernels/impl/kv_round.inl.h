#pragma once

// Rounding a token's keys or values to bytes. Plain loops over neighbouring elements, which the
// compiler turns into vectors.

#include "kernels/impl/kv.inl.h"
#include "kernels/impl/magnitude.inl.h"

namespace pinion::kernels::impl {
namespace {

template <typename Kv>
constexpr float kLargestCode = std::is_same_v<Kv, KvI8>     ? 127.0f
                               : std::is_same_v<Kv, KvE5m2> ? 57344.0f
                                                            : 448.0f;

// Requires |value| <= kLargestCode. Rounds by adding half a unit in the last place minus one, plus
// the last bit kept. There are no subnormals: below half of the smallest normal number the result
// is zero, from there on up to it that number.
template <int kMantissa, int kBias>
uint8_t NarrowCode(float value) {
  constexpr uint32_t kShift = 23 - kMantissa, kSmallest = 1u << kMantissa;
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias) << kMantissa;
  const uint32_t bits = AsBits(value), magnitude = bits & 0x7fffffffu;
  const uint32_t rounded =
      ((magnitude + (1u << (kShift - 1)) - 1 + (magnitude >> kShift & 1)) >> kShift) - kRebias;
  const uint32_t tiny = magnitude >= static_cast<uint32_t>(127 - kBias) << 23 ? kSmallest : 0;
  const bool is_normal = magnitude >= static_cast<uint32_t>(128 - kBias) << 23;
  return static_cast<uint8_t>(bits >> 24 & 0x80u) |
         static_cast<uint8_t>(is_normal ? rounded : tiny);
}

// Adding 1.5 * 2^23 rounds to an integer; the sum's lowest bits are its lowest byte.
void NarrowTo(KvI8& code, float value) {
  code.bits = static_cast<uint8_t>(AsBits(value + 12582912.0f));
}
void NarrowTo(KvE5m2& code, float value) { code.bits = NarrowCode<2, 15>(value); }
void NarrowTo(KvE4m3& code, float value) { code.bits = NarrowCode<3, 7>(value); }

// The least bfloat16 that is not below a value >= 0; NaN stays NaN.
Bf16 RoundUpToBf16(float value) {
  const uint32_t bits = AsBits(value);
  return Bf16{static_cast<uint16_t>((bits >> 16) + ((bits & 0xffffu) != 0 && bits < 0x7f800000u))};
}

// Rounds one token's elements, to the same bytes on every ISA. So it divides instead of multiplying
// by the inverse, which the compiler could contract to a fused multiply-add.
template <typename Kv>
Bf16 NarrowRow(const float* x, size_t n, Kv* codes) {
  constexpr float kLargest = kLargestCode<Kv>;
  const Bf16 scale = RoundUpToBf16(LargestMagnitude(x, n) / kLargest);
  const float divisor = scale.bits == 0 ? 1.0f : Widen(scale);
  for (size_t i = 0; i < n; ++i) {
    const float value = x[i] / divisor;
    const float below = value < kLargest ? value : kLargest;  // also for NaN
    NarrowTo(codes[i], below > -kLargest ? below : -kLargest);
  }
  return scale;
}

}  // namespace
}  // namespace pinion::kernels::impl
