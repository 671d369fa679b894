#pragma once

// Where the keys and values of the next tokens lie, and the scratch that attention works in.

#include "kernels/impl/tile.inl.h"
#include "kernels/kernels.h"

namespace pinion::kernels::impl {
namespace {

// Tokens worked on at a time. More make the second GEMM longer between its loads and stores of
// `out`; 128 keep scores and weights of 64 rows, and the strip's keys and values, within L2.
constexpr size_t kStripTokens = 128;
constexpr size_t kTokenStep = 16;  // blocks are a multiple of this
constexpr int kNarrowRows = 8;     // rows of a tile that is one vector wide

// Up to kStripTokens consecutive tokens, which lie in several blocks.
struct Strip {
  static constexpr size_t kVectors = kStripTokens / kLanes;
  static constexpr size_t kMaxPieces = kStripTokens / kTokenStep;
  size_t tokens = 0;                // read: a multiple of kTokenStep
  size_t live = 0;                  // the first of them, which belong to the sequence
  const std::byte* keys[kVectors];  // of each kLanes tokens; beyond the last: readable, meaningless
  size_t pieces = 0;                // runs of tokens in the same block
  const std::byte* values[kMaxPieces];
  size_t value_steps[kMaxPieces];
};

// How many of the strip's tokens, which begin at position `begin`, query token `token` sees.
size_t LiveTokens(const AttentionArgs& args, const Strip& strip, size_t begin, size_t token) {
  const size_t seen = static_cast<size_t>(args.first_position) + token + 1;  // positions, from 0
  const size_t live = seen > begin ? seen - begin : 0;
  return live < strip.live ? live : strip.live;
}

template <typename Operand>
struct Scratch {
  alignas(64) typename Operand::X q[kAttentionRows][kMaxHeadDim];
  alignas(64) float scores[kAttentionRows][kStripTokens];
  alignas(64) typename Operand::X weights[kAttentionRows][kStripTokens];
  alignas(64) std::byte last_values[kMaxHeadDim * Operand::kBytes];  // see CutValues
};

// The tokens from `begin` on. The last piece reaches into slots at or after `end` where `end` is no
// multiple of kTokenStep.
template <typename Operand>
Strip Gather(const AttentionArgs& args, size_t begin, size_t end) {
  const size_t head_bytes = KvHeadBytes(Operand::kDtype, args.block_tokens, args.head_dim);
  Strip strip;
  while (strip.tokens < kStripTokens && begin < end) {
    const size_t slot = begin % args.block_tokens;
    size_t tokens = RoundUp(end - begin, kTokenStep);
    if (tokens > args.block_tokens - slot) tokens = args.block_tokens - slot;
    if (tokens > kStripTokens - strip.tokens) tokens = kStripTokens - strip.tokens;
    const auto index = static_cast<size_t>(args.block_table[begin / args.block_tokens]);
    const std::byte* keys = args.cache + index * args.block_bytes + args.kv_head * head_bytes;
    const std::byte* values = keys + args.kv_heads * head_bytes;
    for (size_t i = 0; i < tokens; i += kLanes) {
      strip.keys[(strip.tokens + i) / kLanes] = keys + (slot + i) * Operand::kBytes;
    }
    strip.values[strip.pieces] = values + slot / Operand::kStepK * args.head_dim * Operand::kBytes;
    strip.value_steps[strip.pieces++] = tokens / Operand::kStepK;
    strip.tokens += tokens;
    strip.live += tokens < end - begin ? tokens : end - begin;
    begin += tokens;
  }
  const std::byte* other = strip.tokens > 0 ? strip.keys[0] : args.cache;
  for (size_t i = strip.tokens / kLanes; i < Strip::kVectors; ++i) strip.keys[i] = other;
  for (size_t i = strip.pieces; i < Strip::kMaxPieces; ++i) strip.values[i] = other;
  return strip;
}

// Calls f.operator()<rows>(begin) for groups of at most kMost rows that make up `rows`.
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
