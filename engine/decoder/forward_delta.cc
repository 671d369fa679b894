// Gated DeltaNet: projection, causal convolution, the delta rule token by token or in chunks, gated
// norm, output.

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/base/trace.h"
#include "engine/decoder/forward_conv.h"

namespace pinion {
namespace {

struct Delta {
  Delta(const ForwardPass& pass, size_t index)
      : pass(pass),
        index(index),
        weights(pass.weights.layers[index]),
        columns(pass.spec.delta, pass.weights.shard.delta_heads.size()),
        key_dim(static_cast<size_t>(pass.spec.delta.key_dim)),
        value_dim(static_cast<size_t>(pass.spec.delta.value_dim)),
        width(static_cast<size_t>(pass.spec.delta.conv_width)) {}

  const ForwardPass& pass;
  const size_t index;
  const LayerWeights& weights;
  const DeltaColumns columns;
  const size_t key_dim, value_dim, width;

  float* projected(size_t row) const { return pass.w.qkv + row * pass.w.qkv_stride; }
  std::byte* output(size_t row, size_t value_head) const {
    const size_t at = row * weights.o.k_padded() + value_head * value_dim;
    return pass.w.recurred + at * kernels::SizeOf(pass.activation);
  }
};

// ---- Convolution.

void Convolve(const Delta& delta) {
  const ForwardPass& pass = delta.pass;
  const Convolution convolution = {.layer = delta.index,
                                   .src = pass.w.qkv,
                                   .channels = delta.columns.channels(),
                                   .taps = delta.weights.delta.conv,
                                   .width = delta.width};
  const auto activate = [&](size_t, size_t, size_t n, float* dst) {
    pass.table.activate(dst, kernels::Dtype::kF32, kernels::Activation::kSilu, dst, n);
  };
  ShareConvolution(
      pass, convolution, [](size_t, size_t, size_t, float*) {}, activate);
}

// ---- The delta rule.

// dst = src / |src| * scale
void Normalise(const Delta& delta, const float* src, float scale, float* dst) {
  constexpr float kEps = 1e-6f;  // the reference's
  const auto& table = delta.pass.table;
  std::copy_n(src, delta.key_dim, dst);
  table.scale(dst, scale / std::sqrt(table.sum_squares(src, delta.key_dim) + kEps), delta.key_dim);
}

// Rounds the bottlenecks to activations, and multiplies them.
void Widen(const Delta& delta) {
  const ForwardPass& pass = delta.pass;
  const DeltaWeights& weights = delta.weights.delta;
  const size_t element = kernels::SizeOf(pass.activation);
  pass.worker.Share(pass.rows, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      const float* x = delta.projected(row);
      pass.table.store(pass.w.z_bottleneck + row * weights.z_up.k_padded() * element,
                       pass.activation, x + delta.columns.z_down, weights.z_up.k);
      pass.table.store(pass.w.a_bottleneck + row * weights.a_up.k_padded() * element,
                       pass.activation, x + delta.columns.a_down, weights.a_up.k);
    }
  });
  Project(pass, "z_up", weights.z_up, pass.w.z_bottleneck, pass.w.qkv + delta.columns.z,
          pass.w.qkv_stride);
  Project(pass, "a_up", weights.a_up, pass.w.a_bottleneck, pass.w.qkv + delta.columns.a,
          pass.w.qkv_stride);
}

// The decay of a value head for one row of a, or of each channel of its key: [key_dim] at decays.
float Decays(const Delta& delta, const float* a, size_t value_head, float* decays) {
  const DeltaWeights& weights = delta.weights.delta;
  const float rate = -std::exp(weights.log_a[value_head]);
  if (!delta.pass.spec.delta.decay_per_channel)
    return std::exp(rate * Softplus(a[value_head] + weights.dt_bias[value_head]));
  const size_t first = value_head * delta.key_dim;
  delta.pass.table.softplus_decay(decays, a + first, weights.dt_bias + first, rate, delta.key_dim);
  return 1;
}

size_t KeyHeadOf(const Delta& delta, size_t value_head) {
  return value_head / static_cast<size_t>(delta.pass.spec.delta.heads_per_key());
}

// A row's query and key, [key_dim] each.
void NormaliseRow(const Delta& delta, const float* x, size_t value_head, float* q, float* k) {
  const size_t first = KeyHeadOf(delta, value_head) * delta.key_dim;
  Normalise(delta, x + first, 1 / std::sqrt(static_cast<float>(delta.key_dim)), q);
  Normalise(delta, x + delta.columns.k + first, 1, k);
}

float Beta(const Delta& delta, const float* x, size_t value_head) {
  return 1 / (1 + std::exp(-x[delta.columns.b + value_head]));
}

// The gated norm of the rule's output for a row, out, which is overwritten.
void Finish(const Delta& delta, size_t row, size_t value_head, float* out) {
  const ForwardPass& pass = delta.pass;
  pass.table.rms_norm(out, kernels::Dtype::kF32, out, delta.weights.delta.norm, delta.value_dim,
                      pass.spec.norm_eps);
  pass.table.activate_gated(
      delta.output(row, value_head), pass.activation, pass.spec.delta.z_activation,
      delta.projected(row) + delta.columns.z + value_head * delta.value_dim, out, delta.value_dim);
}

void RunRow(const Delta& delta, size_t row, size_t value_head, float* state) {
  const ForwardPass& pass = delta.pass;
  const DeltaColumns& columns = delta.columns;
  const float* x = delta.projected(row);
  std::array<float, kMaxStateDim> q, k, decays, out;
  NormaliseRow(delta, x, value_head, q.data(), k.data());
  const float decay = Decays(delta, x + columns.a, value_head, decays.data());
  pass.table.delta_rule({.state = state,
                         .q = q.data(),
                         .k = k.data(),
                         .v = x + columns.v + value_head * delta.value_dim,
                         .key_dim = delta.key_dim,
                         .value_dim = delta.value_dim,
                         .decay = decay,
                         .beta = Beta(delta, x, value_head),
                         .out = out.data(),
                         .decays = pass.spec.delta.decay_per_channel ? decays.data() : nullptr});
  Finish(delta, row, value_head, out.data());
}

// Rows [begin, begin + rows) of one sequence, at most kDeltaChunk.
void RunChunk(const Delta& delta, size_t begin, size_t rows, size_t value_head, float* state) {
  const ForwardPass& pass = delta.pass;
  const bool by_channel = pass.spec.delta.decay_per_channel;
  const size_t key_dim = delta.key_dim, value_dim = delta.value_dim;
  float* q = pass.scratch.delta;  // as DeltaScratchFloats counts it
  float *k = q + kernels::kDeltaChunk * key_dim, *out = k + kernels::kDeltaChunk * key_dim;
  float* decays = out + kernels::kDeltaChunk * value_dim;
  float* scratch = decays + (by_channel ? kernels::kDeltaChunk * key_dim : 0);
  std::array<float, kernels::kDeltaChunk> decay, beta;
  for (size_t i = 0; i < rows; ++i) {
    const float* x = delta.projected(begin + i);
    NormaliseRow(delta, x, value_head, q + i * key_dim, k + i * key_dim);
    decay[i] = Decays(delta, x + delta.columns.a, value_head, decays + i * key_dim);
    beta[i] = Beta(delta, x, value_head);
  }
  pass.table.delta_chunk({.state = state,
                          .q = q,
                          .k = k,
                          .v = delta.projected(begin) + delta.columns.v + value_head * value_dim,
                          .v_stride = pass.w.qkv_stride,
                          .tokens = rows,
                          .key_dim = key_dim,
                          .value_dim = value_dim,
                          .decay = decay.data(),
                          .beta = beta.data(),
                          .out = out,
                          .scratch = scratch,
                          .decays = by_channel ? decays : nullptr});
  for (size_t i = 0; i < rows; ++i) Finish(delta, begin + i, value_head, out + i * value_dim);
}

// From so many rows on a chunk is faster: 4 tokens take 0.6 to 0.7 of the time of one by one, 8
// half of it, 16 and more a third to 0.45 (build/pinion-bench
// --benchmark_filter='delta/.*/prompt').
constexpr size_t kLeastDeltaChunk = 4;
// The most rows of a chunk if channels decay by themselves: 64 take 1.1 times as long as twice 32
// (--benchmark_filter='delta/.*/prompt_by_channel').
constexpr size_t kChannelChunk = 32;

// Rows [row, end) of one sequence.
void RunSlice(const Delta& delta, size_t row, size_t end, size_t value_head, float* state) {
  const bool by_channel = delta.pass.spec.delta.decay_per_channel;
  const size_t most = by_channel ? kChannelChunk : kernels::kDeltaChunk;
  while (row < end) {
    const size_t rows = std::min(end - row, most);
    if (rows >= kLeastDeltaChunk) {
      RunChunk(delta, row, rows, value_head, state);
      row += rows;
    } else {
      RunRow(delta, row++, value_head, state);
    }
  }
}

// Heads of sequences are independent of each other, the tokens of a sequence are not.
void Recur(const Delta& delta) {
  const TraceSpan span("delta rule", "layer", delta.index);
  const size_t heads = delta.columns.value_heads;
  const auto& slices = delta.pass.batch.slices;
  delta.pass.worker.ShareOneByOne(slices.size() * heads, [&](size_t i) {
    const StepBatch::Slice& slice = slices[i / heads];
    float* state = delta.pass.states.State(delta.index, slice.place, i % heads);
    if (slice.first_position == 0) std::fill_n(state, delta.key_dim * delta.value_dim, 0.0f);
    RunSlice(delta, slice.first_row, slice.first_row + slice.rows, i % heads, state);
  });
}

}  // namespace

void RunDeltaNet(const ForwardPass& pass, size_t layer) {
  const Delta delta(pass, layer);
  Project(pass, "qkv", delta.weights.qkv, pass.w.normed, pass.w.qkv, pass.w.qkv_stride);
  Convolve(delta);
  if (pass.spec.delta.z_rank > 0 && delta.columns.key_heads > 0) Widen(delta);
  Recur(delta);
  Project(pass, "o", delta.weights.o, pass.w.recurred, pass.w.attention_partial,
          pass.w.hidden_stride, PhaseScope::kRanks);
}

}  // namespace pinion
