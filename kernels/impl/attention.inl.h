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

// A run of tokens that lie in the same block.
struct Strip {
  static constexpr size_t kMaxPieces = kStripTokens / kTokenStep;
  size_t pieces = 0, tokens = 0;
  const std::byte *keys[kMaxPieces], *values[kMaxPieces];
  size_t piece_tokens[kMaxPieces], value_steps[kMaxPieces];
};

template <typename Operand>
struct Scratch {
  alignas(64) typename Operand::X q[kAttentionRows][kMaxHeadDim];
  alignas(64) float scores[kAttentionRows][kStripTokens];
  alignas(64) typename Operand::X weights[kAttentionRows][kStripTokens];
};

// The tokens from `begin` on, up to kStripTokens; the last piece reaches into slots at or after
// `end` where `end` is no multiple of kTokenStep (they are masked).
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
    const size_t i = strip.pieces++;
    strip.keys[i] = keys + slot * Operand::kBytes;
    strip.values[i] = values + slot / Operand::kStepK * args.head_dim * Operand::kBytes;
    strip.piece_tokens[i] = tokens;
    strip.value_steps[i] = tokens / Operand::kStepK;
    strip.tokens += tokens;
    begin += tokens;
  }
  return strip;
}

template <typename Operand>
void Prefetch(const AttentionArgs& args, const Strip& strip) {
  const size_t key_stride = args.block_tokens * Operand::kBytes;
  for (size_t i = 0; i < strip.pieces; ++i) {
    const size_t key_bytes = strip.piece_tokens[i] * Operand::kBytes;
    for (size_t step = 0; step < args.head_dim / Operand::kStepK; ++step) {
      for (size_t b = 0; b < key_bytes; b += 64) {
        __builtin_prefetch(strip.keys[i] + step * key_stride + b, 0, 2);
      }
    }
    const size_t value_bytes = strip.value_steps[i] * args.head_dim * Operand::kBytes;
    for (size_t b = 0; b < value_bytes; b += 64) __builtin_prefetch(strip.values[i] + b, 0, 2);
  }
}

// Runs tiles over all rows of a strip of columns that is kColumns vectors (or half a vector) wide.
template <typename Operand, int kColumns, bool kHalf>
void RunRows(TileArgs<Operand> tile, size_t rows) {
  constexpr int kMost = kColumns == 1 ? kNarrowRows : kTileRows;
  const RowGroups groups(rows, kMost);
  const typename Operand::X* x = tile.x;
  float* y = tile.y;
  for (size_t group = 0; group < groups.count; ++group) {
    tile.x = x + groups.Begin(group) * tile.x_stride;
    tile.y = y + groups.Begin(group) * tile.y_stride;
    switch (groups.Size(group)) {
      case 1:
        Tile<Operand, 1, kColumns, 0, kHalf>(tile);
        break;
      case 2:
        Tile<Operand, 2, kColumns, 0, kHalf>(tile);
        break;
      case 3:
        Tile<Operand, 3, kColumns, 0, kHalf>(tile);
        break;
      case 4:
        Tile<Operand, 4, kColumns, 0, kHalf>(tile);
        break;
      case 5:
        Tile<Operand, 5, kColumns, 0, kHalf>(tile);
        break;
      case 6:
        Tile<Operand, 6, kColumns, 0, kHalf>(tile);
        break;
      case 7:
        if constexpr (kMost >= 7) Tile<Operand, 7, kColumns, 0, kHalf>(tile);
        break;
      case 8:
        if constexpr (kMost >= 8) Tile<Operand, 8, kColumns, 0, kHalf>(tile);
        break;
    }
  }
}

// y[rows][columns] (+)= x w, columns a multiple of 8; segments, steps and strides as in `tile`.
template <typename Operand>
void Multiply(TileArgs<Operand> tile, size_t rows, size_t columns) {
  const std::byte* w[Strip::kMaxPieces];
  const std::byte* const* first = tile.w;
  float* y = tile.y;
  tile.w = w;
  for (size_t column = 0; column < columns;) {
    for (size_t i = 0; i < tile.segments; ++i) w[i] = first[i] + column * Operand::kBytes;
    tile.y = y + column;
    if (columns - column >= kWide * kLanes) {
      RunRows<Operand, kWide, false>(tile, rows);
      column += kWide * kLanes;
    } else if (columns - column >= kLanes) {
      RunRows<Operand, 1, false>(tile, rows);
      column += kLanes;
    } else {
      if constexpr (kLanes > 8) RunRows<Operand, 1, true>(tile, rows);
      column += kLanes;
    }
  }
}

template <typename Operand>
void Scores(const AttentionArgs& args, const Strip& strip, size_t rows, Scratch<Operand>& scratch) {
  const size_t steps = args.head_dim / Operand::kStepK;
  TileArgs<Operand> tile = {.x = scratch.q[0],
                            .x_stride = kMaxHeadDim,
                            .steps = &steps,
                            .segments = 1,
                            .w_stride = args.block_tokens * Operand::kBytes,
                            .y = scratch.scores[0],
                            .y_stride = kStripTokens};
  for (size_t i = 0; i < strip.pieces; ++i) {
    tile.w = &strip.keys[i];
    Multiply(tile, rows, strip.piece_tokens[i]);
    tile.y += strip.piece_tokens[i];
  }
}

template <typename Operand>
void Values(const AttentionArgs& args, const Strip& strip, size_t rows, Scratch<Operand>& scratch) {
  const TileArgs<Operand> tile = {.x = scratch.weights[0],
                                  .x_stride = kStripTokens,
                                  .w = strip.values,
                                  .steps = strip.value_steps,
                                  .segments = strip.pieces,
                                  .w_stride = args.head_dim * Operand::kBytes,
                                  .y = args.out,
                                  .y_stride = args.head_dim,
                                  .accumulate = true};
  Multiply(tile, rows, args.head_dim);
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
    Prefetch<Operand>(args, next);
    Scores(args, strip, rows, scratch);
    Softmax(args, begin, static_cast<size_t>(end), strip, scratch);
    Values(args, strip, rows, scratch);
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
