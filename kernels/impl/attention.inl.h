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

// What a dot product is multiplied by after CapScores.
float ScoreScale(const AttentionArgs& args) { return args.soft_cap > 0 ? 1 : args.scale; }

// Turns dot products into scores under a soft cap. tanh(x) = 1 - 2 / (e^2x + 1): its error is some
// units of the last place of 1, not of x, which is as good here, where scores enter as differences.
void CapScores(const AttentionArgs& args, float* scores, size_t tokens) {
  const Vec factor = Set(2 * args.scale / args.soft_cap), cap = Set(args.soft_cap);
  for (size_t i = 0; i < tokens; i += kLanes) {
    const Vec tanh = Set(1) - Set(2) / (Exp(Load(scores + i) * factor) + Set(1));
    Store(scores + i, cap * tanh);
  }
}

// Brings max, sum and out of a row to the largest of its scores [first, end).
void RaiseMax(const AttentionArgs& args, size_t row, const float* scores, Seen seen) {
  Vec largest = Set(-kInfinity);
  for (size_t i = seen.first / kLanes * kLanes; i < seen.end; i += kLanes) {
    largest = Max(LoadUpTo(scores + i, seen.end - i, largest), largest);
  }
  const float max = MaxLane(largest) * ScoreScale(args), old = args.max[row];
  if (!(max > old)) return;
  const float keep = Exp(old - max);
  ScaleRow(args.out + row * args.value_dim, args.value_dim, keep);
  args.sum[row] *= keep;
  args.max[row] = max;
}

// Turns one row's scores into weights e^(s - max), zero outside of what it sees, and brings max,
// sum and out to the new maximum. scale > 0, so the largest score has the largest product.
template <typename Operand>
void SoftmaxRow(const AttentionArgs& args, size_t row, Seen seen, size_t tokens,
                Scratch<Operand>& scratch) {
  float* scores = scratch.scores[row];
  typename Operand::X* weights = scratch.weights[row];
  if (seen.first < seen.end) {
    if (args.soft_cap > 0) CapScores(args, scores, tokens);
    for (size_t i = seen.first / kLanes * kLanes; i < seen.first; ++i) scores[i] = -kInfinity;
    RaiseMax(args, row, scores, seen);
  }
  const Vec scale = Set(ScoreScale(args)), max = Set(args.max[row]);
  Vec sum = Set(0);
  size_t i = 0;
  for (; i + kLanes <= seen.first; i += kLanes) Operand::Put(weights + i, Set(0));
  for (; i < seen.end; i += kLanes) {
    Vec weight = Exp(Load(scores + i) * scale - max);
    if (seen.end - i < kLanes) weight = KeepFirst(weight, seen.end - i);
    sum = sum + weight;
    Operand::Put(weights + i, weight);
  }
  for (; i < tokens; i += kLanes) Operand::Put(weights + i, Set(0));
  args.sum[row] += SumLanes(sum);
}

template <typename Operand>
void Softmax(const AttentionArgs& args, const Strip& strip, Scratch<Operand>& scratch) {
  for (size_t token = 0; token < args.tokens; ++token) {
    const Seen seen = SeenBy(args, strip, token);
    for (size_t g = 0; g < args.group; ++g) {
      SoftmaxRow(args, token * args.group + g, seen, strip.tokens, scratch);
    }
  }
}

template <typename Operand>
void Start(const AttentionArgs& args, size_t rows, Scratch<Operand>& scratch) {
  for (size_t row = 0; row < rows; ++row) {
    const float* q = args.q[row / args.group] + row % args.group * args.key_dim;
    for (size_t i = 0; i < args.key_dim; i += kLanes) {
      Operand::Put(scratch.q[row] + i, LoadUpTo(q + i, args.key_dim - i, Set(0)));
    }
    for (size_t i = 0; i < args.value_dim; i += kLanes) {
      Put(args.out, Dtype::kF32, row * args.value_dim + i, Set(0), args.value_dim - i);
    }
    args.max[row] = -kInfinity;
    args.sum[row] = 0;
  }
}

// The part of the context that any query token sees; begins at a multiple of `step`, which divides
// block_tokens.
struct Range {
  int64_t begin, end;
};
template <int64_t step>
Range SeenByAny(const AttentionArgs& args) {
  int64_t lowest = args.positions[0], highest = lowest;
  for (size_t token = 1; token < args.tokens; ++token) {
    const int64_t position = args.positions[token];
    if (position < lowest) lowest = position;
    if (position > highest) highest = position;
  }
  Range range = {args.context_begin, highest + 1};
  if (range.end > args.context_end) range.end = args.context_end;
  const int64_t first = lowest - args.window + 1;
  if (first > range.begin) range.begin = first / step * step;
  return range;
}

// The two products on vectors.
template <typename Operand>
struct VectorProducts {
  static constexpr size_t kStep = kTokenStep;
  void Scores(const AttentionArgs& args, const Strip& strip, const Strip& next, size_t rows,
              Scratch<Operand>& scratch) {
    impl::Scores(args, strip, next, rows, scratch);
  }
  void AddValues(const AttentionArgs& args, const Strip& strip, Seen seen, const Strip& next,
                 size_t first_row, size_t rows, Scratch<Operand>& scratch) {
    impl::AddValues(args, strip, seen, next, first_row, rows, scratch);
  }
};

template <typename Operand, typename Products>
void AttentionIn(const AttentionArgs& args, Scratch<Operand>& scratch) {
  const size_t rows = args.tokens * args.group;
  Start(args, rows, scratch);
  const Range range = SeenByAny<Products::kStep>(args);
  if (range.end <= range.begin) return;
  const auto end = static_cast<size_t>(range.end);
  constexpr auto kGather = Gather<Operand, Products::kStep>;
  Products products;
  Strip strip = kGather(args, static_cast<size_t>(range.begin), end);
  while (strip.tokens > 0) {
    const Strip next = kGather(args, strip.begin + strip.tokens, end);
    products.Scores(args, strip, next, rows, scratch);
    Softmax(args, strip, scratch);
    if (scratch.latent != nullptr) TurnLatent(args, strip, *scratch.latent);
    Values(args, strip, next, scratch, products);
    strip = next;
  }
}

// A function of its own, so that nobody else's stack holds a strip of latent values.
template <typename Operand, typename Products>
[[gnu::noinline]] void AttentionOfLatent(const AttentionArgs& args, Scratch<Operand>& scratch) {
  LatentValues<Operand> latent;
  scratch.latent = &latent;
  AttentionIn<Operand, Products>(args, scratch);
}

template <typename Operand, typename Products = VectorProducts<Operand>>
void AttentionAs(const AttentionArgs& args) {
  Scratch<Operand> scratch;
  if (args.values == nullptr) return AttentionOfLatent<Operand, Products>(args, scratch);
  scratch.latent = nullptr;
  AttentionIn<Operand, Products>(args, scratch);
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
