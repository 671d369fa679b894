#pragma once

// The arithmetic of recurrent layers for each token.

#include "kernels/impl/math.inl.h"

namespace pinion::kernels::impl {
namespace {

// kVectors neighbouring vectors of columns of a head's state: nothing of a column depends on the
// others. They are read twice, the second time from L1 (128 rows of 4 vectors: 32 KiB).
// kEach: each row of the state has a decay of its own.
template <size_t kVectors, bool kEach>
void DeltaRuleColumns(const DeltaRuleArgs& args, size_t column) {
  const size_t live = args.value_dim - column;  // less than a vector only if kVectors is 1
  const auto load = [live](const float* p, size_t v) {
    return LoadUpTo(p + v * kLanes, live - v * kLanes, Set(0));
  };
  const auto decay = [&args](size_t i) { return kEach ? args.decays[i] : args.decay; };
  Vec known[kVectors], change[kVectors], sum[kVectors];
  for (size_t v = 0; v < kVectors; ++v) known[v] = sum[v] = Set(0);
  const float* row = args.state + column;
  for (size_t i = 0; i < args.key_dim; ++i, row += args.value_dim)
    for (size_t v = 0; v < kVectors; ++v)
      known[v] = Fma(Set(args.k[i] * decay(i)), load(row, v), known[v]);
  for (size_t v = 0; v < kVectors; ++v)
    change[v] = Set(args.beta) * (load(args.v + column, v) - known[v]);
  float* next = args.state + column;
  for (size_t i = 0; i < args.key_dim; ++i, next += args.value_dim) {
    for (size_t v = 0; v < kVectors; ++v) {
      const Vec updated = Fma(Set(args.k[i]), change[v], Set(decay(i)) * load(next, v));
      Put(next, Dtype::kF32, v * kLanes, updated, live - v * kLanes);
      sum[v] = Fma(Set(args.q[i]), updated, sum[v]);
    }
  }
  for (size_t v = 0; v < kVectors; ++v)
    Put(args.out + column, Dtype::kF32, v * kLanes, sum[v], live - v * kLanes);
}

template <bool kEach>
void DeltaRuleAs(const DeltaRuleArgs& args) {
  constexpr size_t kVectors = 4;  // sums to hide an FMA's latency
  size_t column = 0;
  for (; column + kVectors * kLanes <= args.value_dim; column += kVectors * kLanes)
    DeltaRuleColumns<kVectors, kEach>(args, column);
  for (; column < args.value_dim; column += kLanes) DeltaRuleColumns<1, kEach>(args, column);
}

void DeltaRule(const DeltaRuleArgs& args) {
  return args.decays != nullptr ? DeltaRuleAs<true>(args) : DeltaRuleAs<false>(args);
}

// A vector of channels. Weights, and the inputs that the next row needs too, stay in registers.
template <size_t kWidth, bool kWhole>
void ConvolveColumn(const ShortConvArgs& args, size_t column) {
  const size_t live = args.n - column;
  const auto load = [live, column](const float* p) {
    return kWhole ? Load(p + column) : LoadUpTo(p + column, live, Set(0));
  };
  Vec weights[kWidth], inputs[kWidth];
  for (size_t tap = 0; tap < kWidth; ++tap)
    weights[tap] = load(args.weights + tap * args.weight_stride);
  for (size_t tap = 0; tap + 1 < kWidth; ++tap) inputs[tap] = load(args.inputs[args.rows + tap]);
  for (size_t row = args.rows; row-- > 0;) {
    for (size_t tap = kWidth - 1; tap > 0; --tap) inputs[tap] = inputs[tap - 1];
    inputs[0] = load(args.inputs[row]);
    Vec sum = Set(0);
    for (size_t tap = 0; tap < kWidth; ++tap) sum = Fma(weights[tap], inputs[tap], sum);
    Put(args.dst + row * args.stride, Dtype::kF32, column, sum, live);
  }
}

// Other widths than 3 and 4.
void ConvolveWide(const ShortConvArgs& args, size_t column) {
  const size_t live = args.n - column;
  for (size_t row = args.rows; row-- > 0;) {
    Vec sum = Set(0);
    for (size_t tap = 0; tap < args.width; ++tap)
      sum = Fma(LoadUpTo(args.weights + tap * args.weight_stride + column, live, Set(0)),
                LoadUpTo(args.inputs[row + tap] + column, live, Set(0)), sum);
    Put(args.dst + row * args.stride, Dtype::kF32, column, sum, live);
  }
}

template <size_t kWidth>
void ConvolveAs(const ShortConvArgs& args) {
  size_t column = 0;
  for (; column + kLanes <= args.n; column += kLanes) ConvolveColumn<kWidth, true>(args, column);
  if (column < args.n) ConvolveColumn<kWidth, false>(args, column);
}

void ShortConv(const ShortConvArgs& args) {
  switch (args.width) {
    case 3:
      return ConvolveAs<3>(args);
    case 4:
      return ConvolveAs<4>(args);
    default:
      for (size_t column = 0; column < args.n; column += kLanes) ConvolveWide(args, column);
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
