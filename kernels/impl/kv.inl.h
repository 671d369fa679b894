#pragma once

// Writing into the KV cache. Plain loops: a token's keys go to as many places as they have
// elements.

#include <type_traits>

#include "kernels/impl/half.inl.h"
#include "kernels/kernels.h"

namespace pinion::kernels::impl {
namespace {

// How many elements along the reduced dimension lie side by side (kernels.h).
template <typename Kv>
constexpr size_t kKvPairs = std::is_same_v<Kv, Bf16> ? 2 : 1;

// Where element `dim` of token `slot` lies within a block of keys, in elements.
template <typename Kv>
size_t KeyIndex(size_t slot, size_t dim, size_t block_tokens) {
  return (dim / kKvPairs<Kv> * block_tokens + slot) * kKvPairs<Kv> + dim % kKvPairs<Kv>;
}

// Likewise within a block of values.
template <typename Kv>
size_t ValueIndex(size_t slot, size_t dim, size_t value_dim) {
  return (slot / kKvPairs<Kv> * value_dim + dim) * kKvPairs<Kv> + slot % kKvPairs<Kv>;
}

template <typename Kv>
void KvWriteAs(const KvWriteArgs& args) {
  Kv* keys = reinterpret_cast<Kv*>(args.keys);
  for (size_t dim = 0; dim < args.key_dim; ++dim) {
    Narrow(args.k[dim], keys[KeyIndex<Kv>(args.slot, dim, args.block_tokens)]);
  }
  if (args.values == nullptr) return;
  Kv* values = reinterpret_cast<Kv*>(args.values);
  for (size_t dim = 0; dim < args.value_dim; ++dim) {
    Narrow(args.v[dim], values[ValueIndex<Kv>(args.slot, dim, args.value_dim)]);
  }
}

void KvWrite(const KvWriteArgs& args) {
  switch (args.dtype) {
    case Dtype::kF32:
      return KvWriteAs<float>(args);
    case Dtype::kBf16:
      return KvWriteAs<Bf16>(args);
    case Dtype::kF16:
      return KvWriteAs<F16>(args);
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
