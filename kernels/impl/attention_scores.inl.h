#pragma once

// The first product of attention: queries by keys.

#include "kernels/impl/attention_widened.inl.h"

namespace pinion::kernels::impl {
namespace {

// scores[kRows][kColumns vectors] = q . keys. Unlike in Tile, every vector of columns has a pointer
// of its own: a block may hold as few tokens as one vector has lanes, and a tile of a single vector
// would wait for its sums. kAsk vectors of the next strip's keys are prefetched in step. If
// kIsScaled, factors are the rows' and scales the keys', and sums begin with starts.
template <typename Operand, int kRows, int kColumns, int kAsk>
void ScoreTile(const typename Operand::X* q, const std::byte* const* keys,
               const std::byte* const* next, size_t stride, size_t steps, const Vec* starts,
               const float* factors, const Bf16* const* scales, float* scores) {
  Vec sums[kRows][kColumns];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) sums[r][c] = kIsScaled<Operand> ? starts[r] : Set(0);
  }
  for (size_t offset = 0; steps > 0; --steps, offset += stride, q += Operand::kStepK) {
#pragma GCC unroll 16
    for (int c = 0; c < kAsk; ++c) __builtin_prefetch(next[c] + offset, 0, kPrefetchLevel);
#pragma GCC unroll 2
    for (size_t sub = 0; sub < Operand::kSubs; ++sub) {
      Vec weights[kColumns];
#pragma GCC unroll 16
      for (int c = 0; c < kColumns; ++c) {
        weights[c] = Operand::template Load<false>(keys[c] + offset, sub);
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const Vec spread = Operand::Spread(q + r * kMaxKeyDim, sub);
#pragma GCC unroll 16
        for (int c = 0; c < kColumns; ++c) {
          sums[r][c] = Operand::MultiplyAdd(weights[c], spread, sums[r][c]);
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int c = 0; c < kColumns; ++c) {
    Vec scale;
    if constexpr (kIsScaled<Operand>) scale = WidenBf16(scales[c]);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      Vec sum = sums[r][c];
      if constexpr (kIsScaled<Operand>) sum = Operand::Floats(sum) * Set(factors[r]) * scale;
      Store(scores + r * kStripTokens + c * kLanes, sum);
    }
  }
}

// Scores of all rows with the keys of kWide vectors from vector v on, which are widened first.
// Not inlined, so that only this path pays for them on the stack.
template <typename Operand>
[[gnu::noinline]] void ScoreWidened(const AttentionArgs& args, const Strip& strip,
                                    const Strip& next, size_t v, size_t rows,
                                    Scratch<Operand>& scratch) {
  using Keys = KeyOperand<Operand>;
  alignas(64) float widened[kWidenedFloats];
  const size_t stride = args.block_tokens * Keys::kBytes;
  const std::byte *keys[kWide], *ask[kWide], *columns[kWide];
  for (int c = 0; c < kWide; ++c) {
    keys[c] = strip.keys[v + c];
    ask[c] = next.keys[v + c];
    columns[c] = reinterpret_cast<const std::byte*>(widened + c * kLanes);
  }
  float* to = widened;
  for (size_t steps = args.key_dim / Keys::kStepK; steps > 0; --steps) {
    to = WidenStep<Keys>(keys, to);
#pragma GCC unroll 16
    for (int c = 0; c < kWide; ++c) {
      __builtin_prefetch(ask[c], 0, kPrefetchLevel);
      keys[c] += stride;
      ask[c] += stride;
    }
  }
  ForFullTiles(rows, [&]<int kRows>(size_t row) {
    ScoreTile<Widened<Keys>, kRows, kWide, 0>(
        scratch.q[row], columns, columns, kWidenedColumns * sizeof(float), args.key_dim,
        scratch.q_starts + row, scratch.q_factors + row, strip.key_scales + v,
        &scratch.scores[row][v * kLanes]);
  });
}

// Scores of all rows, in tiles of kColumns vectors and at most kMost rows.
template <int kColumns, int kMost, typename Operand>
void ScoreColumns(const AttentionArgs& args, const Strip& strip, const Strip& next, size_t rows,
                  Scratch<Operand>& scratch) {
  using Keys = KeyOperand<Operand>;
  const size_t stride = args.block_tokens * Keys::kBytes;
  const size_t steps = args.key_dim / Keys::kStepK;
  for (size_t v = 0; v * kLanes < strip.tokens; v += kColumns) {
    if constexpr (kWidens<Keys> && kColumns == kWide) {
      if (rows >= kWidenedRows && args.key_dim * kWidenedColumns <= kWidenedFloats) {
        ScoreWidened(args, strip, next, v, rows, scratch);
        continue;
      }
    }
    ForRowGroups<kMost>(rows, [&]<int kRows>(size_t row) {
      const auto tile = row > 0       ? ScoreTile<Keys, kRows, kColumns, 0>
                        : next.sparse ? ScoreTile<Keys, kRows, kColumns, 1>
                                      : ScoreTile<Keys, kRows, kColumns, kColumns>;
      tile(scratch.q[row], strip.keys + v, next.keys + v, stride, steps, scratch.q_starts + row,
           scratch.q_factors + row, strip.key_scales + v, &scratch.scores[row][v * kLanes]);
    });
  }
}

template <typename Operand>
void Scores(const AttentionArgs& args, const Strip& strip, const Strip& next, size_t rows,
            Scratch<Operand>& scratch) {
  if constexpr (kIsScaled<Operand>) {
    for (size_t v = 0; v < strip.tokens / kLanes; ++v) {
      __builtin_prefetch(next.key_scales[v], 0, kPrefetchLevel);
      __builtin_prefetch(next.value_scales[v], 0, kPrefetchLevel);
    }
  }
  if constexpr (kHasTallTiles<Operand>) {
    if (IsTall(rows))
      return ScoreColumns<kTallWidth, kNarrowRows>(args, strip, next, rows, scratch);
  }
  ScoreColumns<kWide, kTileRows>(args, strip, next, rows, scratch);
}

}  // namespace
}  // namespace pinion::kernels::impl
