#pragma once

// The running softmax between the two products of attention: scores become weights.

#include "kernels/impl/attention_strip.inl.h"
#include "kernels/impl/math.inl.h"

namespace pinion::kernels::impl {
namespace {

// The factors of a row of floats that is an operand beside bytes: `to` scales the row to the
// operand's range, `back` undoes that in its products. Both follow from its largest magnitude,
// which is NaN if an element is not finite, so that the result is NaN too.
template <typename Operand>
struct RowScale {
  explicit RowScale(float largest)
      : to(largest < 0x1p-100f ? 0 : Operand::kTop / largest),  // below, it would overflow
        back(largest < 0x1p-100f ? 0 : largest * (Operand::kUnit / Operand::kTop)) {}
  float to, back;
};

// Collects the largest magnitude of vectors; NaN if an element is not finite (0 times it is NaN).
struct Largest {
  Vec magnitude = Set(0), nan = Set(0);
  void Add(Vec v) {
    magnitude = Max(Max(v, Set(0) - v), magnitude);
    nan = Fma(v, Set(0), nan);
  }
  float value() const { return MaxLane(magnitude) + SumLanes(nan); }
};

// Writes the scales of a strip's values to scratch, in the form that weights of at most 1 are
// multiplied by: 0 for tokens that the query token does not see. Returns the factor for the sums;
// NaN if a scale is not finite.
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
  const RowScale<Operand> scale(largest.value());
  for (size_t i = seen.first / kLanes * kLanes; i < seen.end; i += kLanes) {
    Store(scales + i, Load(scales + i) * Set(scale.to));
  }
  return scale.back;
}

// The factor of a dot product in the softmax; CapScores has applied it already.
float ScoreScale(const AttentionArgs& args) { return args.soft_cap > 0 ? 1 : args.scale; }

// Turns dot products into scores under a soft cap. tanh(x) = 1 - 2 / (e^2x + 1) errs by some units
// in the last place of 1, not of x, which does not matter here: softmax uses only differences of
// scores.
void CapScores(const AttentionArgs& args, float* scores, size_t tokens) {
  const Vec factor = Set(2 * args.scale / args.soft_cap), cap = Set(args.soft_cap);
  for (size_t i = 0; i < tokens; i += kLanes) {
    const Vec tanh = Set(1) - Set(2) / (Exp(Load(scores + i) * factor) + Set(1));
    Store(scores + i, cap * tanh);
  }
}

// Rescales sum and out of a row to a new maximum.
[[gnu::noinline]] void Raise(const AttentionArgs& args, size_t row, float max) {
  const float keep = Exp(args.max[row] - max);
  float* out = args.out + row * args.value_dim;
  for (size_t i = 0; i < args.value_dim; i += kLanes) {
    const size_t n = args.value_dim - i;
    Put(out, Dtype::kF32, i, LoadUpTo(out + i, n, Set(0)) * Set(keep), n);
  }
  args.sum[row] *= keep;
  args.max[row] = max;
}

// The largest score that a row sees; -infinity if it sees none. In the first vector, scores before
// the first token seen are overwritten with -infinity; in the last, a mask leaves out those behind
// it.
float LargestScore(const AttentionArgs& args, float* scores, Seen seen) {
  if (seen.first >= seen.end) return -kInfinity;
  size_t i = seen.first / kLanes * kLanes;
  for (size_t unseen = i; unseen < seen.first; ++unseen) scores[unseen] = -kInfinity;
  Vec largest = Set(-kInfinity);
  for (; i + kLanes <= seen.end; i += kLanes) largest = Max(Load(scores + i), largest);
  if (i < seen.end) largest = Max(LoadFirst(scores + i, seen.end - i, largest), largest);
  return MaxLane(largest) * ScoreScale(args);
}

// The power of two that lifts a strip's largest weight, 2^-lag, above 1/2 but not above 1, so that
// rounding to an operand's bits loses little; scaling back by a power of two is exact. A lag so
// large that all weights are 0, or NaN, becomes 126, the largest whose power of two has a normal
// inverse.
float Lift(float lag) { return lag < 126 ? static_cast<float>(static_cast<int>(lag)) : 126; }

// Bytes of values prefetched beside every vector of weights if the strip relies on the CPU's own
// prefetchers, which see no reads during the softmax: 4 rows ask for all values of a strip of 64
// columns.
template <typename Operand>
constexpr size_t kAskInSoftmax = kLanes * 64 / 4 * Operand::kBytes / Operand::kStepK;

// Turns one row's scores into weights 2^lift e^(s - max), zero for tokens that it does not see, and
// returns their sum. If values are bytes, their scales are multiplied into the weights.
template <typename Operand>
float WeighRow(const AttentionArgs& args, const Strip& strip, size_t row, Seen seen, float lift,
               Scratch<Operand>& scratch) {
  const float* scores = scratch.scores[row];
  typename Operand::X* weights = scratch.weights[row];
  const std::byte* ask = strip.values[0] + row * strip.tokens / kLanes * kAskInSoftmax<Operand>;
  const Vec scale = Set(static_cast<float>(ScoreScale(args) * kLog2E));
  const Vec start = Set(lift - static_cast<float>(args.max[row] * kLog2E));
  Vec sum = Set(0);
  const auto put = [&](size_t i, Vec weight) {
    sum = sum + weight;
    if constexpr (kIsScaled<Operand>) weight = weight * Load(scratch.value_scales + i);
    Operand::Put(weights + i, weight);
  };
  size_t i = 0;
  for (; i + kLanes <= seen.first; i += kLanes) Operand::Put(weights + i, Set(0));
#pragma GCC unroll 2
  for (; i + kLanes <= seen.end; i += kLanes) {
    if (strip.sparse) {
#pragma GCC unroll 8
      for (size_t at = 0; at < kAskInSoftmax<Operand>; at += 64)
        __builtin_prefetch(ask + at, 0, kPrefetchLevel);
      ask += kAskInSoftmax<Operand>;
    }
    put(i, PowerOfTwo(Fma(Load(scores + i), scale, start)));
  }
  if (i < seen.end) {
    put(i, KeepFirst(PowerOfTwo(Fma(Load(scores + i), scale, start)), seen.end - i));
    i += kLanes;
  }
  for (; i < strip.tokens; i += kLanes) Operand::Put(weights + i, Set(0));
  return SumLanes(sum);
}

// Turns the scores of one query token's rows into weights, and brings max, sum and out to the new
// maximum. scale > 0, so the largest product is the largest score. Two loops, because a maximum
// over lanes is a long chain of dependent steps: the chains of several rows overlap.
template <typename Operand>
void SoftmaxOfToken(const AttentionArgs& args, const Strip& strip, size_t token,
                    Scratch<Operand>& scratch) {
  const Seen seen = SeenBy(args, strip, token);
  const size_t first_row = token * args.group;
  float back = 0, lifts[kAttentionRows] = {};
  if constexpr (kIsScaled<Operand>) back = SeeScales(strip, seen, scratch);
  for (size_t g = 0; g < args.group; ++g) {
    const size_t row = first_row + g;
    if (args.soft_cap > 0) CapScores(args, scratch.scores[row], strip.tokens);
    const float largest = LargestScore(args, scratch.scores[row], seen);
    if (args.max[row] == -kInfinity) {
      args.max[row] = largest;  // sum and out are 0, or NaN
    } else if (largest > args.max[row]) {
      Raise(args, row, largest);
    }
    if constexpr (kIsScaled<Operand>) {
      lifts[g] = Lift(static_cast<float>((args.max[row] - largest) * kLog2E));
      scratch.weight_factors[row] = back * FirstLane(ScaleByPower(Set(1), Set(-lifts[g])));
    }
  }
  for (size_t g = 0; g < args.group; ++g) {
    const size_t row = first_row + g;
    const float sum = WeighRow(args, strip, row, seen, lifts[g], scratch);
    args.sum[row] += sum * FirstLane(ScaleByPower(Set(1), Set(-lifts[g])));
  }
}

template <typename Operand>
void Softmax(const AttentionArgs& args, const Strip& strip, Scratch<Operand>& scratch) {
  for (size_t token = 0; token < args.tokens; ++token) {
    SoftmaxOfToken(args, strip, token, scratch);
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
