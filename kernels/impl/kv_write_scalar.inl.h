#pragma once

// The reference of writing into the KV cache: one element after the other.

#include "kernels/impl/kv_round.inl.h"

namespace pinion::kernels::impl {
namespace {

// Writes one token's `n` elements to a block, element i at index(i).
template <typename Kv, typename Index>
void WriteRow(const KvWriteArgs& args, size_t slot, std::byte* block, const float* x, size_t n,
              Index index) {
  Kv* elements = reinterpret_cast<Kv*>(block);
  if constexpr (kIsCode<Kv>) {
    Kv codes[kMaxKeyDim];
    ScalesOf(block, args.block_tokens, n)[slot] = NarrowRow(x, n, codes);
    for (size_t i = 0; i < n; ++i) elements[index(i)] = codes[i];
  } else {
    for (size_t i = 0; i < n; ++i) Narrow(x[i], elements[index(i)]);
  }
}

template <typename Kv>
void KvWriteAs(const KvWriteArgs& args) {
  for (size_t token = 0; token < args.tokens; ++token) {
    const size_t slot = args.slot + token, at = token * args.stride;
    WriteRow<Kv>(args, slot, args.keys, args.k + at, args.key_dim,
                 [&](size_t dim) { return KeyIndex<Kv>(slot, dim, args.block_tokens); });
    if (args.values == nullptr) continue;
    WriteRow<Kv>(args, slot, args.values, args.v + at, args.value_dim,
                 [&](size_t dim) { return ValueIndex<Kv>(slot, dim, args.value_dim); });
  }
}

void KvWrite(const KvWriteArgs& args) {
  WithKvOf(args.dtype, [&]<typename Kv>() { KvWriteAs<Kv>(args); });
}

}  // namespace
}  // namespace pinion::kernels::impl
