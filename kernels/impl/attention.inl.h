#pragma once

// Paged attention as two small GEMMs a strip of tokens (scores = q K, out += p V) with a running
// softmax between them (Milakov & Gimelshein, arXiv:1805.02867; tiled as in Dao et al.,
// arXiv:2205.14135). Every key and value is read once for all rows. The layouts of kernels.h make
// both streamed operands look like packed weights, so both GEMMs are tile.inl.h.

#include "kernels/impl/attention_scores.inl.h"
#include "kernels/impl/attention_values.inl.h"
#include "kernels/impl/math.inl.h"

namespace pinion::kernels::impl {
namespace {

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
void Softmax(const AttentionArgs& args, size_t begin, const Strip& strip,
             Scratch<Operand>& scratch) {
  for (size_t token = 0; token < args.tokens; ++token) {
    const size_t live = LiveTokens(args, strip, begin, token);
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
    Softmax(args, begin, strip, scratch);
    Values(args, begin, strip, next, scratch);
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

}  // namespace
}  // namespace pinion::kernels::impl
