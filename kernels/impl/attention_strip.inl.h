#pragma once

// Strips: the addresses of the next tokens' keys and values, and the scratch of attention.

#include "kernels/impl/kv.inl.h"
#include "kernels/impl/tile.inl.h"
#include "kernels/kernels.h"

namespace pinion::kernels::impl {
namespace {

// Tokens per strip, at most. Longer strips let the second GEMM load and store `out` less often and
// softmax wait less for its sums; with 256, scores and weights of 64 rows and the strip's keys and
// values stay within L2. Narrow heads that are read in order (ReadsInOrder) alternate between one
// block of keys and its values, which the CPU's prefetchers follow best: 4 heads of 64 are decoded
// at 50 GB/s in strips of 64, 40 in strips of 128, 36 in strips of 256 (Zen 4, two threads, limit
// 54).
constexpr size_t kStripTokens = 256, kOrderlyStripTokens = 64;
// For latent values, of which a strip is copied to the stack.
constexpr size_t kLatentStripTokens = 128;
constexpr size_t kTokenStep = 16;  // blocks are a multiple of this
constexpr int kNarrowRows = 8;     // rows of a tile one vector wide, or half of kWide
// The next strip is prefetched into L2 (2) while this one is computed. Into L1 (3) it would compete
// for L1's few miss buffers: into L2 decode reads 18 GB/s per thread, into L1 13 (Zen 4, 4 rows).
constexpr int kPrefetchLevel = 2;

// Whether 7 or 8 rows take tiles of half the width, which hold all of them, instead of two passes
// of tiles of full width: 7 heads that share keys are decoded at 41 GB/s instead of 28 (Zen 4, two
// threads, limit 60). Only with instructions that multiply several elements at once and 32
// registers: otherwise arithmetic is the limit, and wide tiles need fewer loads per product.
template <typename Operand>
constexpr bool kHasTallTiles = kWide == 4 && Operand::kSubs == 1 && Operand::kStepK > 1;
constexpr int kTallWidth = kWide / 2;
inline bool IsTall(size_t rows) { return rows > kTileRows && rows <= kNarrowRows; }

// Values of wide heads are multiplied in tiles of twice the width and two rows, if two such tiles
// hold all rows. Tiles of kWide read them in passes that skip every other four lines, which the
// CPU's prefetchers do not follow: broad tiles decode 4 heads of 128 at 41 GB/s instead of 34, 2
// heads at 43 instead of 33 (Zen 4, two threads, limit 53). More than two passes over the strip
// lose more by their loads than they gain: 6 heads at 24 instead of 30. So do operands whose loads
// take several instructions (kSubs), and digits, which double the passes: 4 heads in int8 at 28
// instead of 38.
constexpr int kBroadWidth = 2 * kWide, kBroadRows = 2;
template <typename Operand>
bool TakesBroadTiles(size_t value_dim, size_t rows) {
  return kHasTallTiles<Operand> && kDigitsOf<Operand> == 1 &&
         value_dim % (kBroadWidth * kLanes) == 0 && rows <= 2 * kBroadRows;
}

// Whether keys and values are read line after line, because a tile is as wide as a block of keys
// and at least as wide as a row of values. If the blocks are neighbours too, the CPU's own
// prefetchers keep up, and prefetching every line holds them back; prefetching one line in four
// restarts them when they stop: 4 heads of 64 are decoded at 42 GB/s instead of 37 (Zen 4, two
// threads, limit 62). The same is true at the end of a stretch: prefetching every line of the next
// one makes 4 heads of 128 in stretches of 8 blocks a tenth slower.
template <typename Operand>
bool ReadsInOrder(const AttentionArgs& args, size_t rows) {
  constexpr size_t kWidth = kWide * kLanes, kBroad = kBroadWidth * kLanes;
  const bool broad = TakesBroadTiles<Operand>(args.value_dim, rows) && args.value_dim <= kBroad;
  return args.block_tokens == kWidth && rows <= kTileRows && (broad || args.value_dim <= kWidth);
}

// Tokens per strip; in_order: the result of ReadsInOrder.
size_t StripTokens(const AttentionArgs& args, bool in_order) {
  if (args.values == nullptr) return kLatentStripTokens;
  return in_order && args.value_dim <= kWide * kLanes ? kOrderlyStripTokens : kStripTokens;
}

// Up to kStripTokens consecutive tokens, which may lie in several blocks.
struct Strip {
  static constexpr size_t kVectors = kStripTokens / kLanes;
  static constexpr size_t kMaxPieces = kStripTokens / kTokenStep;
  size_t begin = 0;                 // position of the first
  size_t tokens = 0;                // read: a multiple of Gather's step
  size_t live = 0;                  // the first ones, which belong to the context
  const std::byte* keys[kVectors];  // of each kLanes tokens; beyond the last: readable, unused
  bool follows = false;             // its blocks are neighbours of those before it
  bool sparse = false;              // prefetched one line in four: see ReadsInOrder
  size_t pieces = 0;                // runs of tokens in the same block
  const std::byte* values[kMaxPieces];
  size_t value_steps[kMaxPieces];
  const Bf16 *key_scales[kVectors], *value_scales[kVectors];  // for bytes: of each kLanes tokens
};

// Tokens [first, end) of a strip.
struct Seen {
  size_t first, end;
};

// The first position that a query token at `position` sees.
int64_t FirstSeen(const AttentionArgs& args, int64_t position) {
  const int64_t windowed = position - args.window + 1;
  return windowed > args.first_seen ? windowed : args.first_seen;
}

// The part of the strip that query token `token` sees; empty ranges are [0, 0).
Seen SeenBy(const AttentionArgs& args, const Strip& strip, size_t token) {
  const auto begin = static_cast<int64_t>(strip.begin), live = static_cast<int64_t>(strip.live);
  const int64_t position = args.positions[token];
  int64_t first = FirstSeen(args, position) - begin, end = position + 1 - begin;
  if (first < 0) first = 0;
  if (end > live) end = live;
  if (first >= end) return {0, 0};
  return {static_cast<size_t>(first), static_cast<size_t>(end)};
}

// One strip of latent values, copied into the layout of values.
template <typename Operand>
struct LatentValues {
  static constexpr size_t kElement = Operand::kBytes / Operand::kStepK;
  alignas(64) std::byte strip[kLatentStripTokens * kMaxValueDim * kElement];
};

template <typename Operand>
struct Scratch {
  alignas(64) typename KeyOperand<Operand>::X q[kAttentionRows][kMaxKeyDim];
  alignas(64) float scores[kAttentionRows][kStripTokens];
  alignas(64) typename Operand::X weights[kAttentionRows][kStripTokens];
  // If kIsScaled: the factors of products with a row of q and of weights, the start of the sums of
  // a row of q, and the values' scales as one query token sees them.
  float q_factors[kAttentionRows], weight_factors[kAttentionRows];
  Vec q_starts[kAttentionRows];
  alignas(64) float value_scales[kStripTokens];
  // Copies of the first and the last step of values if they are cut: see CutValues.
  alignas(64) std::byte cut_values[2][kMaxValueDim * Operand::kBytes];
  LatentValues<Operand>* latent;  // null: the values have a plane of their own
};

// Adds the addresses of the scales of `tokens` tokens, from `slot` of a block on.
[[maybe_unused]] void AddScales(const AttentionArgs& args, size_t block, size_t slot, size_t tokens,
                                Strip& strip) {
  const std::byte* key_block = args.keys + args.key_strides.At(block);
  const Bf16* keys = ScalesOf(key_block, args.block_tokens, args.key_dim) + slot;
  const Bf16* values = keys;
  if (args.values != nullptr) {
    const std::byte* value_block = args.values + args.value_strides.At(block);
    values = ScalesOf(value_block, args.block_tokens, args.value_dim) + slot;
  }
  for (size_t i = 0; i < tokens; i += kLanes) {
    strip.key_scales[(strip.tokens + i) / kLanes] = keys + i;
    strip.value_scales[(strip.tokens + i) / kLanes] = values + i;
  }
}

// Fills `strip` with at most `most` tokens from `begin` (a multiple of kStep) on, one piece per
// block. If `end` is not a multiple of kStep, which divides block_tokens, the last piece includes
// slots at or after `end`: tiles compute whole steps, and strip.live masks the rest. `most` is a
// multiple of the columns of every tile of scores. Addresses beyond the strip's tokens repeat the
// last one, so that tiles that are wider than the rest of the strip, and prefetches, stay within
// the cache.
template <typename Operand, size_t kStep>
void Gather(const AttentionArgs& args, size_t begin, size_t end, size_t most, Strip& strip) {
  strip.begin = begin;
  strip.tokens = strip.live = strip.pieces = 0;
  strip.follows = begin > static_cast<size_t>(args.context_begin);
  const std::byte* other = args.keys;
  while (strip.tokens < most && begin < end) {
    const size_t slot = begin % args.block_tokens;
    size_t tokens = RoundUp(end - begin, kStep);
    if (tokens > args.block_tokens - slot) tokens = args.block_tokens - slot;
    if (tokens > most - strip.tokens) tokens = most - strip.tokens;
    const int32_t* entry = args.block_table + begin / args.block_tokens;
    const auto block = static_cast<size_t>(*entry);
    if (slot == 0) strip.follows = strip.follows && entry[0] == entry[-1] + 1;
    const std::byte* keys = args.keys + args.key_strides.At(block) + slot * Operand::kBytes;
    other = keys;
    for (size_t i = 0; i < tokens; i += kLanes) {
      strip.keys[(strip.tokens + i) / kLanes] = keys + i * Operand::kBytes;
    }
    if constexpr (kIsScaled<Operand>) AddScales(args, block, slot, tokens, strip);
    strip.values[strip.pieces] =
        args.values == nullptr ? keys
                               : args.values + args.value_strides.At(block) +
                                     slot / Operand::kStepK * args.value_dim * Operand::kBytes;
    strip.value_steps[strip.pieces++] = tokens / Operand::kStepK;
    strip.tokens += tokens;
    strip.live += tokens < end - begin ? tokens : end - begin;
    begin += tokens;
  }
  for (size_t i = strip.tokens / kLanes; i < most / kLanes; ++i) {
    strip.keys[i] = other;
    strip.key_scales[i] = strip.value_scales[i] = reinterpret_cast<const Bf16*>(other);
  }
  if (strip.pieces == 0) strip.values[0] = other;
}

// Calls f.operator()<rows>(begin) for the groups of at most kMost rows that make up `rows`. The
// number of rows is a template argument because a register tile's sums must be in registers.
template <int kMost, typename F>
void ForRowGroups(size_t rows, F f) {
  const RowGroups groups(rows, kMost);
  for (size_t group = 0; group < groups.count; ++group) {
    const size_t begin = groups.Begin(group);
    switch (groups.Size(group)) {
      case 1:
        f.template operator()<1>(begin);
        break;
      case 2:
        f.template operator()<2>(begin);
        break;
      case 3:
        f.template operator()<3>(begin);
        break;
      case 4:
        f.template operator()<4>(begin);
        break;
      case 5:
        f.template operator()<5>(begin);
        break;
      case 6:
        f.template operator()<6>(begin);
        break;
      case 7:
        if constexpr (kMost >= 7) f.template operator()<7>(begin);
        break;
      case 8:
        if constexpr (kMost >= 8) f.template operator()<8>(begin);
        break;
    }
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
