#pragma once

// Writes into the KV cache: the same bytes as those of kv_write_scalar.inl.h. Rows are rounded in
// whole vectors to scratch, and copied from there to their places in units of elements that lie
// side by side: neighbouring units of keys lie block_tokens apart. Of four tokens, units that are
// words are transposed, so that four of them are stored at once.

#include <emmintrin.h>

#include "kernels/impl/convert.inl.h"
#include "kernels/impl/kv_round.inl.h"
#include "kernels/impl/math.inl.h"

namespace pinion::kernels::impl {
namespace {

// Rounds `n` elements of a plane's block to `row`, which has room for whole vectors, and writes the
// slot's scale if there is one.
template <typename Kv>
void RoundRow(const KvWriteArgs& args, size_t slot, std::byte* block, const float* x, size_t n,
              Kv* row) {
  if constexpr (kIsCode<Kv>) {
    ScalesOf(block, args.block_tokens, n)[slot] = NarrowRow(x, n, row);
  } else {
    for (size_t i = 0; i < n; i += kLanes) StoreAs(row + i, LoadUpTo(x + i, n - i, Set(0)));
  }
}

// Some tokens' rounded rows.
constexpr size_t kRowsTogether = 4;
template <typename Kv>
using Rows = Kv[kRowsTogether][kMaxKeyDim];

template <typename Kv>
void PlaceKeys(const KvWriteArgs& args, size_t slot, const Kv* row) {
  constexpr size_t kUnit = kKvPairs<Kv> * sizeof(Kv);
  const size_t stride = args.block_tokens * kUnit;
  std::byte* to = args.keys + slot * kUnit;
  for (size_t i = 0; i < args.key_dim; i += kKvPairs<Kv>, to += stride)
    __builtin_memcpy(to, row + i, kUnit);
}

// The slots beside this one may be another thread's: only its own elements are written.
template <typename Kv>
void PlaceValues(const KvWriteArgs& args, size_t slot, const Kv* row) {
  Kv* to = reinterpret_cast<Kv*>(args.values) + ValueIndex<Kv>(slot, 0, args.value_dim);
  for (size_t i = 0; i < args.value_dim; ++i) to[i * kKvPairs<Kv>] = row[i];
}

inline __m128i LoadUnits(const void* p) { return _mm_load_si128(static_cast<const __m128i*>(p)); }
inline void StoreUnits(std::byte* p, __m128i units) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), units);
}

// The keys of four tokens, if what lies side by side is a word. key_dim is a multiple of 8, and a
// vector of 16 bytes holds four words of a row.
template <typename Kv>
void PlaceKeysOfFour(const KvWriteArgs& args, size_t slot, const Rows<Kv>& rows) {
  constexpr size_t kWord = 4, kStep = 16 / sizeof(Kv);
  static_assert(kKvPairs<Kv> * sizeof(Kv) == kWord);
  const size_t stride = args.block_tokens * kWord;
  std::byte* to = args.keys + slot * kWord;
  size_t i = 0;
  for (; i + kStep <= args.key_dim; i += kStep, to += 4 * stride) {
    const __m128i a = LoadUnits(rows[0] + i), b = LoadUnits(rows[1] + i);
    const __m128i c = LoadUnits(rows[2] + i), d = LoadUnits(rows[3] + i);
    const __m128i ab_low = _mm_unpacklo_epi32(a, b), cd_low = _mm_unpacklo_epi32(c, d);
    const __m128i ab_high = _mm_unpackhi_epi32(a, b), cd_high = _mm_unpackhi_epi32(c, d);
    StoreUnits(to, _mm_unpacklo_epi64(ab_low, cd_low));
    StoreUnits(to + stride, _mm_unpackhi_epi64(ab_low, cd_low));
    StoreUnits(to + 2 * stride, _mm_unpacklo_epi64(ab_high, cd_high));
    StoreUnits(to + 3 * stride, _mm_unpackhi_epi64(ab_high, cd_high));
  }
  for (; i < args.key_dim; i += kKvPairs<Kv>, to += stride)
    for (size_t row = 0; row < kRowsTogether; ++row)
      __builtin_memcpy(to + row * kWord, rows[row] + i, kWord);
}

// The values of two neighbouring tokens, of which the first is in an even slot.
void PlaceValuesOfTwo(const KvWriteArgs& args, size_t slot, const Bf16* even, const Bf16* odd) {
  std::byte* to = args.values + ValueIndex<Bf16>(slot, 0, args.value_dim) * sizeof(Bf16);
  size_t i = 0;
  for (; i + 8 <= args.value_dim; i += 8, to += 32) {
    const __m128i a = LoadUnits(even + i), b = LoadUnits(odd + i);
    StoreUnits(to, _mm_unpacklo_epi16(a, b));
    StoreUnits(to + 16, _mm_unpackhi_epi16(a, b));
  }
  for (; i < args.value_dim; ++i, to += 4) {
    __builtin_memcpy(to, even + i, sizeof(Bf16));
    __builtin_memcpy(to + 2, odd + i, sizeof(Bf16));
  }
}

template <typename Kv>
void PlaceValuesOfFour(const KvWriteArgs& args, size_t slot, const Rows<Kv>& rows) {
  if constexpr (std::is_same_v<Kv, Bf16>) {
    if (slot % 2 == 0) {
      PlaceValuesOfTwo(args, slot, rows[0], rows[1]);
      return PlaceValuesOfTwo(args, slot + 2, rows[2], rows[3]);
    }
  }
  for (size_t row = 0; row < kRowsTogether; ++row) PlaceValues(args, slot + row, rows[row]);
}

// The tokens from `token` on: `count` of them, which are one or kRowsTogether.
template <typename Kv>
void WriteTokens(const KvWriteArgs& args, size_t token, size_t count) {
  constexpr bool kWords = kKvPairs<Kv> * sizeof(Kv) == 4;
  const size_t slot = args.slot + token, at = token * args.stride;
  alignas(64) Rows<Kv> rows;
  for (size_t row = 0; row < count; ++row)
    RoundRow(args, slot + row, args.keys, args.k + at + row * args.stride, args.key_dim, rows[row]);
  if constexpr (kWords) {
    if (count == kRowsTogether) PlaceKeysOfFour(args, slot, rows);
  }
  if (!kWords || count < kRowsTogether)
    for (size_t row = 0; row < count; ++row) PlaceKeys(args, slot + row, rows[row]);
  if (args.values == nullptr) return;
  for (size_t row = 0; row < count; ++row)
    RoundRow(args, slot + row, args.values, args.v + at + row * args.stride, args.value_dim,
             rows[row]);
  if (count == kRowsTogether) return PlaceValuesOfFour(args, slot, rows);
  for (size_t row = 0; row < count; ++row) PlaceValues(args, slot + row, rows[row]);
}

template <typename Kv>
void KvWriteAs(const KvWriteArgs& args) {
  static_assert(kMaxKeyDim * sizeof(Kv) % 64 == 0 && kMaxValueDim <= kMaxKeyDim);
  for (size_t token = 0; token < args.tokens;) {
    const size_t count = args.tokens - token < kRowsTogether ? 1 : kRowsTogether;
    WriteTokens<Kv>(args, token, count);
    token += count;
  }
}

void KvWrite(const KvWriteArgs& args) {
  WithKvOf(args.dtype, [&]<typename Kv>() { KvWriteAs<Kv>(args); });
}

}  // namespace
}  // namespace pinion::kernels::impl
