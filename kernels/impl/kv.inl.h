#pragma once

// Writes into the KV cache. Plain loops, because a token's keys are scattered: neighbouring
// elements lie block_tokens apart (kernels.h).

#include <type_traits>

#include "kernels/impl/half.inl.h"
#include "kernels/kernels.h"

namespace pinion::kernels::impl {
namespace {

// ---- Elements that are bytes -------------------------------------------------------------------

struct KvI8 {
  uint8_t bits;
};
struct KvE5m2 {
  uint8_t bits;
};
struct KvE4m3 {
  uint8_t bits;
};

template <typename Kv>
constexpr bool kIsCode = sizeof(Kv) == 1;

template <typename Kv>
constexpr float kLargestCode = std::is_same_v<Kv, KvI8>     ? 127.0f
                               : std::is_same_v<Kv, KvE5m2> ? 57344.0f
                                                            : 448.0f;

// An eight-bit float: its exponent and mantissa are shifted to their places in a float, and a
// multiplication corrects the bias.
template <int kMantissa, int kBias>
float WidenCode(uint8_t bits) {
  constexpr uint32_t kExponents = static_cast<uint32_t>(254 - kBias) << 23;  // 2^(127 - bias)
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7f) << (23 - kMantissa);
  return AsFloat(static_cast<uint32_t>(bits & 0x80) << 24 | magnitude) * AsFloat(kExponents);
}
using impl::Widen;  // of bfloat16 and float16, beside these
[[maybe_unused]] float Widen(KvI8 code) { return static_cast<int8_t>(code.bits); }
[[maybe_unused]] float Widen(KvE5m2 code) { return WidenCode<2, 15>(code.bits); }
[[maybe_unused]] float Widen(KvE4m3 code) { return WidenCode<3, 7>(code.bits); }

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

// The largest magnitude; infinite or NaN if an element is. Compares bits, because NaN and infinity
// have larger ones than every number, while comparisons of floats ignore NaN.
float LargestMagnitude(const float* x, size_t n) {
  uint32_t largest = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t magnitude = AsBits(x[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  return AsFloat(largest);
}

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

// ---- Layouts -----------------------------------------------------------------------------------

// The number of elements along the reduced dimension that lie side by side (kernels.h).
template <typename Kv>
constexpr size_t kKvPairs = kIsCode<Kv>                ? 4
                            : std::is_same_v<Kv, Bf16> ? 2
                                                       : 1;

// The index of element `dim` of token `slot` within a block of keys.
template <typename Kv>
size_t KeyIndex(size_t slot, size_t dim, size_t block_tokens) {
  return (dim / kKvPairs<Kv> * block_tokens + slot) * kKvPairs<Kv> + dim % kKvPairs<Kv>;
}

// The same within a block of values.
template <typename Kv>
size_t ValueIndex(size_t slot, size_t dim, size_t value_dim) {
  return (slot / kKvPairs<Kv> * value_dim + dim) * kKvPairs<Kv> + slot % kKvPairs<Kv>;
}

// The scales of a block of bytes.
[[maybe_unused]] const Bf16* ScalesOf(const std::byte* block, size_t block_tokens, size_t dim) {
  return reinterpret_cast<const Bf16*>(block + block_tokens * dim);
}
Bf16* ScalesOf(std::byte* block, size_t block_tokens, size_t dim) {
  return reinterpret_cast<Bf16*>(block + block_tokens * dim);
}

// Writes one token's `n` elements to a block, element i at index(i).
template <typename Kv, typename Index>
void WriteRow(const KvWriteArgs& args, std::byte* block, const float* x, size_t n, Index index) {
  Kv* elements = reinterpret_cast<Kv*>(block);
  if constexpr (kIsCode<Kv>) {
    Kv codes[kMaxKeyDim];
    ScalesOf(block, args.block_tokens, n)[args.slot] = NarrowRow(x, n, codes);
    for (size_t i = 0; i < n; ++i) elements[index(i)] = codes[i];
  } else {
    for (size_t i = 0; i < n; ++i) Narrow(x[i], elements[index(i)]);
  }
}

template <typename Kv>
void KvWriteAs(const KvWriteArgs& args) {
  WriteRow<Kv>(args, args.keys, args.k, args.key_dim,
               [&](size_t dim) { return KeyIndex<Kv>(args.slot, dim, args.block_tokens); });
  if (args.values == nullptr) return;
  WriteRow<Kv>(args, args.values, args.v, args.value_dim,
               [&](size_t dim) { return ValueIndex<Kv>(args.slot, dim, args.value_dim); });
}

void KvWrite(const KvWriteArgs& args) {
  switch (args.dtype) {
    case KvDtype::kF32:
      return KvWriteAs<float>(args);
    case KvDtype::kBf16:
      return KvWriteAs<Bf16>(args);
    case KvDtype::kF16:
      return KvWriteAs<F16>(args);
    case KvDtype::kI8:
      return KvWriteAs<KvI8>(args);
    case KvDtype::kE5m2:
      return KvWriteAs<KvE5m2>(args);
    case KvDtype::kE4m3:
      return KvWriteAs<KvE4m3>(args);
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
