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

// A row of floats as an operand that is multiplied by bytes: its largest magnitude, NaN where an
// element is not finite, decides by what it is multiplied, and by what its products.
template <typename Operand>
struct RowScale {
  explicit RowScale(float largest)
      : to(largest < 0x1p-100f ? 0 : Operand::kTop / largest),  // so that 1 / largest is a number
        back(largest < 0x1p-100f ? 0 : largest * (Operand::kUnit / Operand::kTop)) {}
  float to, back;
};

// Collects the largest magnitude of vectors, NaN where an element is not finite.
struct Largest {
  Vec magnitude = Set(0), nan = Set(0);
  void Add(Vec v) {
    magnitude = Max(Max(v, Set(0) - v), magnitude);
    nan = Fma(v, Set(0), nan);
  }
  float value() const { return MaxLane(magnitude) + SumLanes(nan); }
};

// One row of queries for keys of bytes.
template <typename Operand>
void StartScaledRow(const AttentionArgs& args, const float* q, size_t row,
                    Scratch<Operand>& scratch) {
  using Keys = KeyOperand<Operand>;
  Largest largest;
  for (size_t i = 0; i < args.key_dim; i += kLanes) {
    largest.Add(LoadUpTo(q + i, args.key_dim - i, Set(0)));
  }
  const RowScale<Keys> scale(largest.value());
  scratch.q_factors[row] = scale.back;
  for (size_t i = 0; i < args.key_dim; i += kLanes) {
    Keys::Put(scratch.q[row] + i, LoadUpTo(q + i, args.key_dim - i, Set(0)) * Set(scale.to));
  }
  scratch.q_starts[row] = Set(0);
  if constexpr (requires { Keys::Start(scratch.q[row], args.key_dim); }) {
    scratch.q_starts[row] = Keys::Start(scratch.q[row], args.key_dim);
  }
}

// The scales of a strip's values, 0 where a query token does not see them; returns the largest, NaN
// where one is not finite.
template <typename Operand>
float SeeScales(const Strip& strip, Seen seen, Scratch<Operand>& scratch) {
  Largest largest;
  float* scales = scratch.value_scales;
  for (size_t i = seen.first / kLanes * kLanes; i < seen.end; i += kLanes) {
    Vec v = WidenBf16(strip.value_scales[i / kLanes]);
    if (seen.end - i < kLanes) v = KeepFirst(v, seen.end - i);
    Store(scales + i, v);
    for (size_t unseen = i; unseen < seen.first; ++unseen) scales[unseen] = 0;
    largest.Add(i < seen.first ? Load(scales + i) : v);
  }
  return largest.value();
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

// Brings max, sum and out of a row to the largest of its scores [first, end), which it returns.
float RaiseMax(const AttentionArgs& args, size_t row, const float* scores, Seen seen) {
  Vec largest = Set(-kInfinity);
  for (size_t i = seen.first / kLanes * kLanes; i < seen.end; i += kLanes) {
    largest = Max(LoadUpTo(scores + i, seen.end - i, largest), largest);
  }
  const float max = MaxLane(largest) * ScoreScale(args), old = args.max[row];
  if (!(max > old)) return max;
  const float keep = Exp(old - max);
  ScaleRow(args.out + row * args.value_dim, args.value_dim, keep);
  args.sum[row] *= keep;
  args.max[row] = max;
  return max;
}

// Bytes of values that are asked for beside every vector of weights, where the CPU's prefetchers,
// who see no reads meanwhile, are relied on: 4 rows ask for all values of a strip of 64 columns.
constexpr size_t kAskInSoftmax = 512;

// Turns one row's scores into weights e^(s - max), zero outside of what it sees, and brings max,
// sum and out to the new maximum. scale > 0, so the largest score has the largest product. Where
// the values are bytes, their scales (the largest of which is largest_scale) go into the weights.
template <typename Operand>
void SoftmaxRow(const AttentionArgs& args, const Strip& strip, size_t row, Seen seen,
                float largest_scale, Scratch<Operand>& scratch) {
  float *scores = scratch.scores[row], max_here = -kInfinity;
  typename Operand::X* weights = scratch.weights[row];
  if (seen.first < seen.end) {
    if (args.soft_cap > 0) CapScores(args, scores, strip.tokens);
    for (size_t i = seen.first / kLanes * kLanes; i < seen.first; ++i) scores[i] = -kInfinity;
    max_here = RaiseMax(args, row, scores, seen);
  }
  const std::byte* ask = strip.values[0] + row * kStripTokens / kLanes * kAskInSoftmax;
  const Vec scale = Set(static_cast<float>(ScoreScale(args) * kLog2E));
  const Vec max = Set(static_cast<float>(args.max[row] * kLog2E));
  Vec to = Set(0);
  if constexpr (kIsScaled<Operand>) {
    const bool sees = seen.first < seen.end;
    const RowScale<Operand> of(sees ? Exp(max_here - args.max[row]) * largest_scale : 0);
    scratch.weight_factors[row] = of.back;
    to = Set(of.to);
  }
  Vec sum = Set(0);
  size_t i = 0;
  for (; i + kLanes <= seen.first; i += kLanes) Operand::Put(weights + i, Set(0));
  for (; i < seen.end; i += kLanes) {
    if (strip.sparse) {
#pragma GCC unroll 8
      for (size_t at = 0; at < kAskInSoftmax; at += 64)
        __builtin_prefetch(ask + at, 0, kPrefetchLevel);
      ask += kAskInSoftmax;
    }
    Vec weight = PowerOfTwo(Fma(Load(scores + i), scale, Set(0) - max));
    if (seen.end - i < kLanes) weight = KeepFirst(weight, seen.end - i);
    sum = sum + weight;
    if constexpr (kIsScaled<Operand>) weight = weight * (Load(scratch.value_scales + i) * to);
    Operand::Put(weights + i, weight);
  }
  for (; i < strip.tokens; i += kLanes) Operand::Put(weights + i, Set(0));
  args.sum[row] += SumLanes(sum);
}

template <typename Operand>
void Softmax(const AttentionArgs& args, const Strip& strip, Scratch<Operand>& scratch) {
  for (size_t token = 0; token < args.tokens; ++token) {
    const Seen seen = SeenBy(args, strip, token);
    float largest_scale = 0;
    if constexpr (kIsScaled<Operand>) largest_scale = SeeScales(strip, seen, scratch);
    for (size_t g = 0; g < args.group; ++g) {
      SoftmaxRow(args, strip, token * args.group + g, seen, largest_scale, scratch);
    }
  }
}

template <typename Operand>
void Start(const AttentionArgs& args, size_t rows, Scratch<Operand>& scratch) {
  for (size_t row = 0; row < rows; ++row) {
    const float* q = args.q[row / args.group] + row % args.group * args.key_dim;
    if constexpr (kIsScaled<Operand>) {
      StartScaledRow(args, q, row, scratch);
    } else {
      for (size_t i = 0; i < args.key_dim; i += kLanes) {
        Operand::Put(scratch.q[row] + i, LoadUpTo(q + i, args.key_dim - i, Set(0)));
      }
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
  static constexpr bool kAsksSparsely = true;
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
    Strip next = kGather(args, strip.begin + strip.tokens, end);
    if constexpr (Products::kAsksSparsely) {
      next.sparse = next.follows && ReadsInOrder<Operand>(args, rows);
    }
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

// Over a cache of bytes, in a file of its own for every ISA: these are half of attention's code.
// Operands: what multiplies int8 and eight-bit floats.
template <typename Operands>
void AttentionOfBytes(const AttentionArgs& args) {
  switch (args.dtype) {
    case KvDtype::kI8:
      return AttentionAs<typename Operands::I8>(args);
    case KvDtype::kE5m2:
      return AttentionAs<typename Operands::E5m2>(args);
    default:
      return AttentionAs<typename Operands::E4m3>(args);
  }
}

// Over any cache, without instructions for bfloat16; of_bytes: the ISA's AttentionOfBytes.
template <void (*of_bytes)(const AttentionArgs&)>
void Attention(const AttentionArgs& args) {
  switch (args.dtype) {
    case KvDtype::kF32:
      return AttentionAs<OperandF32>(args);
    case KvDtype::kBf16:
      return AttentionAs<OperandBf16Widened>(args);
    case KvDtype::kF16:
      return AttentionAs<OperandF16>(args);
    default:
      return of_bytes(args);
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
