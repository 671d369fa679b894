// Attention: projection, norms and rotation of heads, the cache, the output.

#include <algorithm>
#include <cmath>

#include "engine/base/trace.h"
#include "engine/decoder/attend.h"
#include "engine/decoder/forward_pass.h"

namespace pinion {
namespace {

// A rank's heads in the order of its projection: queries, keys, values.
struct Heads {
  explicit Heads(const Shard& shard) : q(shard.q_heads.size()), kv(shard.kv_heads.size()) {}
  size_t q, kv;
  size_t rotated() const { return q + kv; }
};

float* HeadOf(const ForwardPass& pass, size_t row, size_t index) {
  return pass.w.qkv + row * pass.w.qkv_stride + index * pass.head_dim;
}

void AddHeadBias(const ForwardPass& pass, const LayerWeights& layer, size_t index, float* head) {
  if (layer.qkv_bias) pass.table.add(head, layer.qkv_bias + index * pass.head_dim, pass.head_dim);
}

// ---- Norm over the whole projection: the sum of squares goes over the heads of all ranks.

// If several ranks hold a KV head, the first of them counts it.
bool CountsKvHead(const ForwardPass& pass, size_t kv_head) {
  const RankExchange& exchange = pass.model.exchange;
  const size_t own = exchange.first_rank() + static_cast<size_t>(pass.worker.rank);
  for (size_t rank = 0; rank < own; ++rank)
    if (kv_head < exchange.shard(rank).kv_heads.end) return false;
  return true;
}

void MeasureHeads(const ForwardPass& pass, const LayerWeights& layer) {
  const TraceSpan span("measure heads");
  const Shard& shard = pass.weights.shard;
  const Heads heads(shard);
  const auto measure = [&](size_t row, size_t index) {
    const bool is_query = index < heads.q;
    const size_t kv_head = is_query ? 0 : shard.kv_heads.begin + index - heads.q;
    if (!is_query && !CountsKvHead(pass, kv_head)) return;
    const float* head = HeadOf(pass, row, index);
    float* biased = pass.scratch.hidden_row;
    std::copy_n(head, pass.head_dim, biased);
    AddHeadBias(pass, layer, index, biased);
    const size_t unit =
        is_query ? shard.q_heads.begin + index : static_cast<size_t>(pass.spec.heads) + kv_head;
    pass.model.exchange.own_head_squares()[row * HeadSquares(pass.spec).stride + unit] =
        pass.table.sum_squares(biased, pass.head_dim);
  };
  const auto measure_all = [&](size_t begin, size_t end) {
    for (size_t at = begin; at < end; ++at) measure(at / heads.rotated(), at % heads.rotated());
  };
  // The phase spans all ranks, because WholeScale reads the sums of all of them.
  pass.worker.Share(pass.rows * heads.rotated(), measure_all, PhaseScope::kRanks);
  Fetch(pass, [&](RankExchange& exchange) { exchange.FetchHeadSquares(pass.rows); });
}

// 1 / RMS of one row's queries or keys. Every rank adds the heads up in the same order, so that all
// of them get the same bits.
float WholeScale(const ForwardPass& pass, size_t row, bool is_query) {
  const auto q = static_cast<size_t>(pass.spec.heads), kv = static_cast<size_t>(pass.spec.kv_heads);
  const float* squares =
      pass.model.exchange.head_squares() + row * HeadSquares(pass.spec).stride + (is_query ? 0 : q);
  const size_t count = is_query ? q : kv;
  float sum = 0;
  for (size_t i = 0; i < count; ++i) sum += squares[i];
  const auto elements = static_cast<float>(count * pass.head_dim);
  return 1 / std::sqrt(sum / elements + pass.spec.norm_eps);
}

// ---- Every query and key head: bias, norm, rotation.

void NormHead(const ForwardPass& pass, const LayerWeights& layer, const Heads& heads, size_t row,
              size_t index, float* head) {
  const bool is_query = index < heads.q;
  const float* weight = is_query ? layer.q_norm : layer.k_norm;
  switch (pass.spec.qk_norm) {
    case QkNorm::kNone:
      return;
    case QkNorm::kPerHead:
      return pass.table.rms_norm(head, kernels::Dtype::kF32, head, weight, pass.head_dim,
                                 pass.spec.norm_eps);
    case QkNorm::kWhole:
      weight += (is_query ? index : index - heads.q) * pass.head_dim;
      return pass.table.weigh(head, weight, WholeScale(pass, row, is_query), pass.head_dim);
  }
}

void Rotate(const ForwardPass& pass, size_t layer, size_t row, float* head) {
  const int which = pass.spec.layer_specs[layer].rope;
  if (which < 0) return;
  const auto index = static_cast<size_t>(which);
  const size_t half = pass.model.ropes[index].frequencies.size();
  const auto [cosine, sine] = pass.w.angles[index].row(row, half);
  const auto rotate =
      pass.spec.ropes[index].interleaved ? pass.table.rotary_pairs : pass.table.rotary;
  rotate(head, cosine, sine, half);
}

// Bias, norm and rotation of a query or key.
void PrepareHead(const ForwardPass& pass, size_t index, const Heads& heads, size_t row, size_t unit,
                 float* head) {
  const LayerWeights& layer = pass.weights.layers[index];
  const bool normed = pass.spec.layer_specs[index].qk_norm;
  const bool norm_last = pass.spec.qk_norm_after_rope;
  AddHeadBias(pass, layer, unit, head);
  if (normed && !norm_last) NormHead(pass, layer, heads, row, unit, head);
  Rotate(pass, index, row, head);
  if (normed && norm_last) NormHead(pass, layer, heads, row, unit, head);
}

void ScaleQuery(const ForwardPass& pass, size_t layer, size_t position, float* head) {
  if (pass.spec.layer_specs[layer].scales_queries)
    pass.table.scale(head, pass.spec.query_scale.At(position), pass.head_dim);
}

// Prepares queries and keys, and writes keys and values to the cache, of (row, head) pairs
// [begin, end).
void PrepareHeads(const ForwardPass& pass, size_t index, const Heads& heads, size_t begin,
                  size_t end) {
  const LayerWeights& layer = pass.weights.layers[index];
  const size_t cached = CachedLayer(pass.spec, index);
  size_t slice = 0;
  for (size_t at = begin; at < end; ++at) {
    const size_t row = at / heads.rotated(), unit = at % heads.rotated();
    const auto& slices = pass.batch.slices;
    while (row >= slices[slice].first_row + slices[slice].rows) ++slice;
    const StepBatch::Slice& of = slices[slice];
    const size_t position = of.first_position + row - of.first_row;
    float* head = HeadOf(pass, row, unit);
    PrepareHead(pass, index, heads, row, unit, head);
    if (unit < heads.q) {
      ScaleQuery(pass, index, position, head);
      continue;
    }
    float* value = HeadOf(pass, row, unit + heads.kv);
    AddHeadBias(pass, layer, unit + heads.kv, value);
    pass.cache.Write(pass.table, cached, unit - heads.q, of.block_table, position, head, value);
  }
}

// The work is cut into (row, head) pairs, so that even a single row keeps every thread busy.
void PrepareAndStore(const ForwardPass& pass, size_t index) {
  const TraceSpan span("rotary+store");
  const Heads heads(pass.weights.shard);
  pass.worker.Share(pass.rows * heads.rotated(), [&](size_t begin, size_t end) {
    PrepareHeads(pass, index, heads, begin, end);
  });
}

// If heads have gates, the results stay in float32, in the place of the queries: nobody reads a
// token's queries of a group after its result is written.
void AttendLayer(const ForwardPass& pass, size_t layer) {
  const TraceSpan span("attention", "layer", layer);
  const size_t cached = CachedLayer(pass.spec, layer);
  const bool gated = pass.spec.attention_gate;
  Attend({.table = pass.table,
          .batch = pass.batch,
          .shard = pass.weights.shard,
          .cache = pass.cache,
          .layer = cached,
          .spec = LayerAttention(pass.spec, layer),
          .plan = pass.w.plans.of_layer(cached),
          .q = pass.w.qkv,
          .q_stride = pass.w.qkv_stride,
          .sinks = pass.weights.layers[layer].sinks,
          .dst = gated ? reinterpret_cast<std::byte*>(pass.w.qkv) : pass.w.attended,
          .dst_stride = gated ? pass.w.qkv_stride : pass.w.attended_stride,
          .dst_type = gated ? kernels::Dtype::kF32 : pass.activation,
          .parts = pass.w.parts.data()},
         pass.worker, pass.scratch.part);
}

// Each head's result times the sigmoid of its gate.
void GateHeads(const ForwardPass& pass) {
  const TraceSpan span("gate");
  const Heads heads(pass.weights.shard);
  const size_t row_bytes = pass.w.attended_stride * kernels::SizeOf(pass.activation);
  pass.worker.Share(pass.rows, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row)
      pass.table.activate_gated(
          pass.w.attended + row * row_bytes, pass.activation, kernels::Activation::kSigmoid,
          HeadOf(pass, row, heads.q + 2 * heads.kv), HeadOf(pass, row, 0), heads.q * pass.head_dim);
  });
}

}  // namespace

void RunAttention(const ForwardPass& pass, size_t layer) {
  const LayerWeights& weights = pass.weights.layers[layer];
  Project(pass, "qkv", weights.qkv, pass.w.normed, pass.w.qkv, pass.w.qkv_stride);
  if (pass.spec.qk_norm == QkNorm::kWhole) MeasureHeads(pass, weights);
  PrepareAndStore(pass, layer);
  AttendLayer(pass, layer);
  if (pass.spec.attention_gate) GateHeads(pass);
  Project(pass, "o", weights.o, pass.w.attended, pass.w.attention_partial, pass.w.hidden_stride,
          PhaseScope::kRanks);
}

}  // namespace pinion
