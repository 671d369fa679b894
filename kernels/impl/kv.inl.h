#pragma once

// The KV cache (kernels.h): its elements, and where in a block those of a token lie.

#include <type_traits>

#include "kernels/impl/half.inl.h"
#include "kernels/kernels.h"

namespace pinion::kernels::impl {
namespace {

// ---- Elements ----------------------------------------------------------------------------------

// Those that are bytes.
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

// Calls f.operator()<Kv>() with the elements of a cache of `dtype`.
template <typename F>
void WithKvOf(KvDtype dtype, F f) {
  switch (dtype) {
    case KvDtype::kF32:
      return f.template operator()<float>();
    case KvDtype::kBf16:
      return f.template operator()<Bf16>();
    case KvDtype::kF16:
      return f.template operator()<F16>();
    case KvDtype::kI8:
      return f.template operator()<KvI8>();
    case KvDtype::kE5m2:
      return f.template operator()<KvE5m2>();
    case KvDtype::kE4m3:
      return f.template operator()<KvE4m3>();
  }
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
[[maybe_unused]] Bf16* ScalesOf(std::byte* block, size_t block_tokens, size_t dim) {
  return reinterpret_cast<Bf16*>(block + block_tokens * dim);
}

}  // namespace
}  // namespace pinion::kernels::impl
