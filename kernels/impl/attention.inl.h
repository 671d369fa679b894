#pragma once

// Paged attention as two small GEMMs a strip of tokens (scores = q K, out += p V) with a running
// softmax between them (Milakov & Gimelshein, arXiv:1805.02867; tiled as in Dao et al.,
// arXiv:2205.14135). Every key and value is read once for all rows. The layouts of kernels.h make
// both streamed operands look like packed weights, so both GEMMs are tile.inl.h.

#include "kernels/impl/math.inl.h"
#include "kernels/impl/tile.inl.h"

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
  size_t tokens = 0;
  const std::byte* keys[kVectors];  // of each kLanes tokens; beyond the last: readable, meaningless
  size_t pieces = 0;                // runs of tokens in the same block
  const std::byte* values[kMaxPieces];
  size_t value_steps[kMaxPieces];
};

template <typename Operand>
struct Scratch {
  alignas(64) typename Operand::X q[kAttentionRows][kMaxHeadDim];
  alignas(64) float scores[kAttentionRows][kStripTokens];
  alignas(64) typename Operand::X weights[kAttentionRows][kStripTokens];
};

// The tokens from `begin` on. The last piece reaches into slots at or after `end` where `end` is no
// multiple of kTokenStep; those are masked.
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

// scores[kRows][kWide vectors] = q . keys. Unlike in Tile, every vector of columns has a place of
// its own: blocks may hold as few tokens as one vector, and one vector a tile would wait for its
// sums. The next strip's keys are prefetched in step where `next` is given.
template <typename Operand, int kRows>
void ScoreTile(const typename Operand::X* q, const std::byte* const* keys,
               const std::byte* const* next, size_t stride, size_t steps, float* scores) {
  Vec sums[kRows][kWide];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kWide; ++c) sums[r][c] = Set(0);
  }
  for (size_t offset = 0; steps > 0; --steps, offset += stride, q += Operand::kStepK) {
    if (next != nullptr) {
#pragma GCC unroll 16
      for (int c = 0; c < kWide; ++c) __builtin_prefetch(next[c] + offset, 0, 2);
    }
#pragma GCC unroll 2
    for (size_t sub = 0; sub < Operand::kSubs; ++sub) {
      Vec weights[kWide];
#pragma GCC unroll 16
      for (int c = 0; c < kWide; ++c) {
        weights[c] = Operand::template Load<false>(keys[c] + offset, sub);
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const Vec spread = Operand::Spread(q + r * kMaxHeadDim, sub);
#pragma GCC unroll 16
        for (int c = 0; c < kWide; ++c) {
          sums[r][c] = Operand::MultiplyAdd(weights[c], spread, sums[r][c]);
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kWide; ++c) Store(scores + r * kStripTokens + c * kLanes, sums[r][c]);
  }
}

template <typename Operand>
void Scores(const AttentionArgs& args, const Strip& strip, const Strip& next, size_t rows,
            Scratch<Operand>& scratch) {
  const size_t stride = args.block_tokens * Operand::kBytes;
  const size_t steps = args.head_dim / Operand::kStepK;
  for (size_t v = 0; v * kLanes < strip.tokens; v += kWide) {
    ForRowGroups<kTileRows>(rows, [&]<int kRows>(size_t row) {
      ScoreTile<Operand, kRows>(scratch.q[row], strip.keys + v, row == 0 ? next.keys + v : nullptr,
                                stride, steps, &scratch.scores[row][v * kLanes]);
    });
  }
}

// All rows of one strip of output columns, kColumns vectors (or half a vector) wide.
template <typename Operand, int kColumns, bool kHalf>
void ValueColumns(TileArgs<Operand> tile, size_t rows) {
  constexpr int kLines = (kColumns * kLanes * Operand::kBytes + 63) / 64;
  constexpr int kMost = kColumns == 1 ? kNarrowRows : kTileRows;
  const typename Operand::X* x = tile.x;
  float* y = tile.y;
  ForRowGroups<kMost>(rows, [&]<int kRows>(size_t row) {
    tile.x = x + row * tile.x_stride;
    tile.y = y + row * tile.y_stride;
    if (row == 0) {
      Tile<Operand, kRows, kColumns, kLines, kHalf>(tile);
    } else {
      Tile<Operand, kRows, kColumns, 0, kHalf>(tile);
    }
  });
}

// out += weights * values; the next strip's values are prefetched in step.
template <typename Operand>
void Values(const AttentionArgs& args, const Strip& strip, const Strip& next, size_t rows,
            Scratch<Operand>& scratch) {
  const std::byte *w[Strip::kMaxPieces], *prefetch[Strip::kMaxPieces];
  TileArgs<Operand> tile = {.x = scratch.weights[0],
                            .x_stride = kStripTokens,
                            .w = w,
                            .steps = strip.value_steps,
                            .segments = strip.pieces,
                            .w_stride = args.head_dim * Operand::kBytes,
                            .y_stride = args.head_dim,
                            .accumulate = true,
                            .prefetch = prefetch};
  for (size_t column = 0; column < args.head_dim;) {
    for (size_t i = 0; i < strip.pieces; ++i) {
      w[i] = strip.values[i] + column * Operand::kBytes;
      prefetch[i] = next.values[i] + column * Operand::kBytes;
    }
    tile.y = args.out + column;
    const size_t left = args.head_dim - column;
    if (left >= kWide * kLanes) {
      ValueColumns<Operand, kWide, false>(tile, rows);
      column += kWide * kLanes;
    } else if (left >= kLanes) {
      ValueColumns<Operand, 1, false>(tile, rows);
      column += kLanes;
    } else {
      if constexpr (kLanes > 8) ValueColumns<Operand, 1, true>(tile, rows);
      column += kLanes;
    }
  }
}

void ScaleRow(float* out, size_t n, float factor) {
  for (size_t i = 0; i < n; i += kLanes) {
    Put(out, Dtype::kF32, i, LoadUpTo(out + i, n - i, Set(0)) * Set(factor), n - i);
  }
}

// Turns one row's scores into weights e^(s - max), zero beyond the first `live` of `tokens`, and
// brings max, sum and out to the new maximum. scale > 0, so the largest product has the largest
// dot.
template <typename Operand>
void SoftmaxRow(const AttentionArgs& args, size_t row, size_t live, size_t tokens,
                Scratch<Operand>& scratch) {
  const float* scores = scratch.scores[row];
  typename Operand::X* weights = scratch.weights[row];
  if (live > 0) {
    Vec largest = Set(-kInfinity);
    for (size_t i = 0; i < live; i += kLanes) {
      largest = Max(LoadUpTo(scores + i, live - i, largest), largest);
    }
    const float strip_max = MaxLane(largest) * args.scale, old = args.max[row];
    if (strip_max > old) {
      const float keep = Exp(old - strip_max);
      ScaleRow(args.out + row * args.head_dim, args.head_dim, keep);
      args.sum[row] *= keep;
      args.max[row] = strip_max;
    }
  }
  const Vec scale = Set(args.scale), max = Set(args.max[row]);
  Vec sum = Set(0);
  size_t i = 0;
  for (; i < live; i += kLanes) {
    Vec weight = Exp(Load(scores + i) * scale - max);
    if (live - i < kLanes) weight = KeepFirst(weight, live - i);
    sum = sum + weight;
    Operand::Put(weights + i, weight);
  }
  for (; i < tokens; i += kLanes) Operand::Put(weights + i, Set(0));
  args.sum[row] += SumLanes(sum);
}

template <typename Operand>
void Softmax(const AttentionArgs& args, size_t begin, size_t end, const Strip& strip,
             Scratch<Operand>& scratch) {
  for (size_t token = 0; token < args.tokens; ++token) {
    size_t seen = static_cast<size_t>(args.first_position) + token + 1;  // positions, from 0
    if (seen > end) seen = end;
    size_t live = seen > begin ? seen - begin : 0;
    if (live > strip.tokens) live = strip.tokens;
    for (size_t g = 0; g < args.group; ++g) {
      SoftmaxRow(args, token * args.group + g, live, strip.tokens, scratch);
    }
  }
}

template <typename Operand>
void Start(const AttentionArgs& args, size_t rows, Scratch<Operand>& scratch) {
  for (size_t row = 0; row < rows; ++row) {
    const float* q = args.q + row / args.group * args.q_stride + row % args.group * args.head_dim;
    for (size_t i = 0; i < args.head_dim; i += kLanes) {
      Operand::Put(scratch.q[row] + i, LoadUpTo(q + i, args.head_dim - i, Set(0)));
      Put(args.out, Dtype::kF32, row * args.head_dim + i, Set(0), args.head_dim - i);
    }
    args.max[row] = -kInfinity;
    args.sum[row] = 0;
  }
}

template <typename Operand>
void AttentionAs(const AttentionArgs& args) {
  const size_t rows = args.tokens * args.group;
  Scratch<Operand> scratch;
  Start(args, rows, scratch);
  // Nothing after the last query token is seen by any row.
  const int64_t last = args.first_position + static_cast<int64_t>(args.tokens);
  const int64_t end = last < args.context_end ? last : args.context_end;
  if (end <= args.context_begin) return;

  auto begin = static_cast<size_t>(args.context_begin);
  Strip strip = Gather<Operand>(args, begin, static_cast<size_t>(end));
  while (strip.tokens > 0) {
    const Strip next = Gather<Operand>(args, begin + strip.tokens, static_cast<size_t>(end));
    Scores(args, strip, next, rows, scratch);
    Softmax(args, begin, static_cast<size_t>(end), strip, scratch);
    Values(args, strip, next, rows, scratch);
    begin += strip.tokens;
    strip = next;
  }
}

template <typename Bf16Operand>
void Attention(const AttentionArgs& args) {
  switch (args.dtype) {
    case Dtype::kF32:
      return AttentionAs<OperandF32>(args);
    case Dtype::kBf16:
      return AttentionAs<Bf16Operand>(args);
    case Dtype::kF16:
      return AttentionAs<OperandF16>(args);
  }
}

// One row: dst = sum_p e^(max_p - max) out_p / sum_p e^(max_p - max) sum_p.
void MergeRow(const AttentionMergeArgs& args, size_t row, size_t dst_begin) {
  float max = -kInfinity;
  for (size_t p = 0; p < args.parts; ++p) {
    const float part = args.max[p * args.row_part_stride + row];
    max = part > max ? part : max;
  }
  Vec total[kMaxHeadDim / kLanes];
  for (size_t i = 0; i < args.head_dim; i += kLanes) total[i / kLanes] = Set(0);
  float sum = 0;
  for (size_t p = 0; p < args.parts && max != -kInfinity; ++p) {
    const float weight = Exp(args.max[p * args.row_part_stride + row] - max);
    const float* out = args.out + p * args.out_part_stride + row * args.head_dim;
    sum += weight * args.sum[p * args.row_part_stride + row];
    for (size_t i = 0; i < args.head_dim; i += kLanes) {
      const Vec part = LoadUpTo(out + i, args.head_dim - i, Set(0));
      total[i / kLanes] = Fma(Set(weight), part, total[i / kLanes]);
    }
  }
  const Vec scale = Set(sum > 0 ? 1 / sum : 0);
  for (size_t i = 0; i < args.head_dim; i += kLanes) {
    Put(args.dst, args.dst_type, dst_begin + i, total[i / kLanes] * scale, args.head_dim - i);
  }
}

void AttentionMerge(const AttentionMergeArgs& args) {
  for (size_t token = 0; token < args.tokens; ++token) {
    for (size_t g = 0; g < args.group; ++g) {
      MergeRow(args, token * args.group + g, token * args.dst_stride + g * args.head_dim);
    }
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
