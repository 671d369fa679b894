#pragma once

// Writes into the KV cache: the same bytes as those of kv_write_scalar.inl.h. A row is rounded in
// whole vectors to scratch, and copied from there to its places in units of elements that lie side
// by side: neighbouring units lie far apart, those of keys block_tokens apart.

#include "kernels/impl/convert.inl.h"
#include "kernels/impl/kv_round.inl.h"
#include "kernels/impl/math.inl.h"

namespace pinion::kernels::impl {
namespace {

// Rounds `n` elements of a plane's block to `row`, which has room for whole vectors, and writes the
// scale if there is one.
template <typename Kv>
void RoundRow(const KvWriteArgs& args, std::byte* block, const float* x, size_t n, Kv* row) {
  if constexpr (kIsCode<Kv>) {
    ScalesOf(block, args.block_tokens, n)[args.slot] = NarrowRow(x, n, row);
  } else {
    for (size_t i = 0; i < n; i += kLanes) StoreAs(row + i, LoadUpTo(x + i, n - i, Set(0)));
  }
}

template <typename Kv>
void PlaceKeys(const KvWriteArgs& args, const Kv* row) {
  constexpr size_t kUnit = kKvPairs<Kv> * sizeof(Kv);
  const size_t stride = args.block_tokens * kUnit;
  std::byte* to = args.keys + args.slot * kUnit;
  for (size_t i = 0; i < args.key_dim; i += kKvPairs<Kv>, to += stride)
    __builtin_memcpy(to, row + i, kUnit);
}

// The slots beside this one may be another thread's: only its own elements are written.
template <typename Kv>
void PlaceValues(const KvWriteArgs& args, const Kv* row) {
  Kv* to = reinterpret_cast<Kv*>(args.values) + ValueIndex<Kv>(args.slot, 0, args.value_dim);
  for (size_t i = 0; i < args.value_dim; ++i) to[i * kKvPairs<Kv>] = row[i];
}

template <typename Kv>
void KvWriteAs(const KvWriteArgs& args) {
  static_assert(kMaxKeyDim % kLanes == 0 && kMaxValueDim <= kMaxKeyDim);
  alignas(64) Kv row[kMaxKeyDim];
  RoundRow(args, args.keys, args.k, args.key_dim, row);
  PlaceKeys(args, row);
  if (args.values == nullptr) return;
  RoundRow(args, args.values, args.v, args.value_dim, row);
  PlaceValues(args, row);
}

void KvWrite(const KvWriteArgs& args) {
  WithKvOf(args.dtype, [&]<typename Kv>() { KvWriteAs<Kv>(args); });
}

}  // namespace
}  // namespace pinion::kernels::impl
