// Attention: projection, norms and rotation of heads, the cache, the output.

#include <algorithm>
#include <cmath>

#include "engine/base/trace.h"
#include "engine/decoder/attend.h"
#include "engine/decoder/forward_pass.h"
#include "engine/decoder/head_items.h"

namespace pinion {
namespace {

// A rank's heads in a layer, in the order of its projection: queries, keys, values; queries alone
// if it sees another layer's keys and values.
struct Heads {
  Heads(const ForwardPass& pass, size_t layer)
      : share(pass.weights.shard.Heads(layer)),
        q(share.q_heads.size()),
        kv(Caches(pass.spec.layer_specs[layer]) ? share.kv_heads.size() : 0),
        dim(static_cast<size_t>(LayerHeads(pass.spec, layer).head_dim)) {}
  const HeadShare& share;
  size_t q, kv, dim;
  size_t rotated() const { return q + kv; }
};

float* HeadOf(const ForwardPass& pass, const Heads& heads, size_t row, size_t index) {
  return pass.w.qkv + row * pass.w.qkv_stride + index * heads.dim;
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

void MeasureHeads(const ForwardPass& pass, size_t index_of_layer) {
  const TraceSpan span("measure heads");
  const Heads heads(pass, index_of_layer);
  const auto measure = [&](size_t row, size_t index) {
    const bool is_query = index < heads.q;
    const size_t kv_head = is_query ? 0 : heads.share.kv_heads.begin + index - heads.q;
    if (!is_query && !CountsKvHead(pass, kv_head)) return;
    const size_t unit = is_query ? heads.share.q_heads.begin + index
                                 : static_cast<size_t>(pass.spec.heads) + kv_head;
    pass.model.exchange.own_row_sums()[row * RowSums(pass.spec).stride + unit] =
        pass.table.sum_squares(HeadOf(pass, heads, row, index), heads.dim);
  };
  const auto measure_all = [&](size_t begin, size_t end) {
    for (size_t at = begin; at < end; ++at) measure(at / heads.rotated(), at % heads.rotated());
  };
  // The phase spans all ranks, because WholeScale reads the sums of all of them.
  pass.worker.Share(pass.rows * heads.rotated(), measure_all, PhaseScope::kRanks);
  Fetch(pass, [&](RankExchange& exchange) { exchange.FetchRowSums(pass.rows); });
}

// 1 / RMS of one row's queries or keys. Every rank adds the heads up in the same order, so that all
// of them get the same bits.
float WholeScale(const ForwardPass& pass, const Heads& heads, size_t row, bool is_query) {
  const auto q = static_cast<size_t>(pass.spec.heads), kv = static_cast<size_t>(pass.spec.kv_heads);
  const float* squares =
      pass.model.exchange.row_sums() + row * RowSums(pass.spec).stride + (is_query ? 0 : q);
  const size_t count = is_query ? q : kv;
  float sum = 0;
  for (size_t i = 0; i < count; ++i) sum += squares[i];
  const auto elements = static_cast<float>(count * heads.dim);
  return 1 / std::sqrt(sum / elements + pass.spec.norm_eps);
}

// ---- Every query and key head: norm, rotation.

void NormHead(const ForwardPass& pass, const LayerWeights& layer, const Heads& heads, size_t row,
              size_t index, float* head) {
  const bool is_query = index < heads.q;
  const float* weight = is_query ? layer.q_norm : layer.k_norm;
  switch (pass.spec.qk_norm) {
    case QkNorm::kNone:
      return;
    case QkNorm::kPerHead:
      return pass.table.rms_norm(head, kernels::Dtype::kF32, head, weight, heads.dim,
                                 pass.spec.norm_eps);
    case QkNorm::kWhole:
      weight += (is_query ? index : index - heads.q) * heads.dim;
      return pass.table.weigh(head, weight, WholeScale(pass, heads, row, is_query), heads.dim);
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

// Norm and rotation of a query or key.
void PrepareHead(const ForwardPass& pass, size_t index, const Heads& heads, size_t row, size_t unit,
                 float* head) {
  const LayerWeights& layer = pass.weights.layers[index];
  const bool normed = pass.spec.layer_specs[index].qk_norm;
  const bool norm_last = pass.spec.qk_norm_after_rope;
  if (normed && !norm_last) NormHead(pass, layer, heads, row, unit, head);
  Rotate(pass, index, row, head);
  if (normed && norm_last) NormHead(pass, layer, heads, row, unit, head);
}

void ScaleQuery(const ForwardPass& pass, size_t layer, const Heads& heads, size_t position,
                float* head) {
  if (pass.spec.layer_specs[layer].scales_queries)
    pass.table.scale(head, pass.spec.query_scale.At(position), heads.dim);
}

// The value that belongs to a key head, which is not prepared yet: a head of its own or, if keys
// are values too, a copy in the thread's scratch.
float* ValueOf(const ForwardPass& pass, size_t index, const Heads& heads, size_t row, size_t unit) {
  float* value = HeadOf(pass, heads, row, unit + heads.kv);
  if (pass.spec.layer_specs[index].keys_as_values) {
    value = pass.scratch.hidden_row;
    std::copy_n(HeadOf(pass, heads, row, unit), heads.dim, value);
  }
  if (pass.spec.value_norm) {
    const float mean = pass.table.sum_squares(value, heads.dim) / static_cast<float>(heads.dim);
    pass.table.scale(value, 1 / std::sqrt(mean + pass.spec.norm_eps), heads.dim);
  }
  return value;
}

void PrepareQuery(const ForwardPass& pass, size_t index, const Heads& heads,
                  const StepBatch::Slice& slice, size_t row, size_t unit) {
  float* head = HeadOf(pass, heads, row, unit);
  PrepareHead(pass, index, heads, row, unit, head);
  ScaleQuery(pass, index, heads, slice.first_position + row - slice.first_row, head);
}

// Prepares the keys of rows [row, end), and writes those of each block to the cache with their
// values. Values that lie in the thread's scratch are written one by one.
void StoreKeys(const ForwardPass& pass, size_t index, const Heads& heads,
               const StepBatch::Slice& slice, size_t row, size_t end, size_t unit) {
  const KvPlace place = pass.model.kv_places[index];
  const size_t block = pass.cache.block_tokens();
  while (row < end) {
    const size_t position = slice.first_position + row - slice.first_row;
    const size_t in_block = std::min(end - row, block - position % block);
    const size_t count = pass.spec.layer_specs[index].keys_as_values ? 1 : in_block;
    const float* values = ValueOf(pass, index, heads, row, unit);
    for (size_t i = 1; i < count; ++i) ValueOf(pass, index, heads, row + i, unit);
    for (size_t i = 0; i < count; ++i)
      PrepareHead(pass, index, heads, row + i, unit, HeadOf(pass, heads, row + i, unit));
    pass.cache.Write(pass.table, place.layer, unit - heads.q, slice.block_tables[place.table],
                     {position, HeadOf(pass, heads, row, unit), values, count, pass.w.qkv_stride});
    row += count;
  }
}

// Heads of `together` rows each, from head `first` of the projection on.
struct HeadItems {
  size_t first, together;
};

// Items [begin, end), all heads of some rows one after the other.
void PrepareHeads(const ForwardPass& pass, size_t index, const Heads& heads, HeadItems items,
                  size_t begin, size_t end) {
  const auto& slices = pass.batch.slices;
  const auto is_behind = [&](size_t row, size_t slice) {
    return row >= slices[slice].first_row + slices[slice].rows;
  };
  size_t first_slice = 0;
  for (size_t at = begin; at < end; ++at) {
    const size_t units = heads.rotated() - items.first;
    const size_t unit = items.first + at % units, first = at / units * items.together;
    while (is_behind(first, first_slice)) ++first_slice;
    const size_t last = std::min(first + items.together, pass.rows);
    for (size_t row = first, slice = first_slice; row < last; ++slice) {
      const size_t end = std::min(last, slices[slice].first_row + slices[slice].rows);
      if (unit >= heads.q)
        StoreKeys(pass, index, heads, slices[slice], row, end, unit);
      else
        for (size_t i = row; i < end; ++i) PrepareQuery(pass, index, heads, slices[slice], i, unit);
      row = std::max(row, end);
    }
  }
}

void PrepareAndStore(const ForwardPass& pass, size_t index) {
  const TraceSpan span("rotary+store");
  const Heads heads(pass, index);
  const size_t first = ChangesQueries(pass.spec, index) ? 0 : heads.q;
  const size_t changed = heads.rotated() - first;
  const auto threads = static_cast<size_t>(pass.worker.threads);
  const HeadItems items = {first, RowsTogether(pass.rows, changed, threads)};
  const size_t groups = (pass.rows + items.together - 1) / items.together;
  pass.worker.Share(groups * changed, [&](size_t begin, size_t end) {
    PrepareHeads(pass, index, heads, items, begin, end);
  });
}

// If heads have gates, the results stay in float32, in the place of the queries: nobody reads a
// token's queries of a group after its result is written.
void AttendLayer(const ForwardPass& pass, size_t layer) {
  const TraceSpan span("attention", "layer", layer);
  const bool gated = pass.spec.attention_gate;
  Attend({.table = pass.table,
          .batch = pass.batch,
          .heads = pass.weights.shard.Heads(layer),
          .cache = pass.cache,
          .place = pass.model.kv_places[layer],
          .spec = LayerAttention(pass.spec, layer),
          .plan = pass.w.plans.of_layer(layer)[pass.batch.place.part],
          .q = pass.w.qkv,
          .q_stride = pass.w.qkv_stride,
          .sinks = pass.weights.layers[layer].sinks,
          .dst = gated ? reinterpret_cast<std::byte*>(pass.w.qkv) : pass.w.attended,
          .dst_stride = gated ? pass.w.qkv_stride : pass.weights.layers[layer].o.k_padded(),
          .dst_type = gated ? kernels::Dtype::kF32 : pass.activation,
          .parts = pass.w.parts.data()},
         pass.worker, pass.scratch.part);
}

// Each head's result times the sigmoid of its gate.
void GateHeads(const ForwardPass& pass, size_t layer) {
  const TraceSpan span("gate");
  const Heads heads(pass, layer);
  const size_t row_bytes =
      pass.weights.layers[layer].o.k_padded() * kernels::SizeOf(pass.activation);
  pass.worker.Share(pass.rows, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row)
      pass.table.activate_gated(pass.w.attended + row * row_bytes, pass.activation,
                                kernels::Activation::kSigmoid,
                                HeadOf(pass, heads, row, heads.q + 2 * heads.kv),
                                HeadOf(pass, heads, row, 0), heads.q * heads.dim);
  });
}

}  // namespace

void RunAttention(const ForwardPass& pass, size_t layer) {
  const LayerWeights& weights = pass.weights.layers[layer];
  Project(pass, "qkv", weights.qkv, pass.w.normed, pass.w.qkv, pass.w.qkv_stride, PhaseScope::kTeam,
          weights.qkv_bias);
  if (pass.spec.qk_norm == QkNorm::kWhole) MeasureHeads(pass, layer);
  PrepareAndStore(pass, layer);
  AttendLayer(pass, layer);
  if (pass.spec.attention_gate) GateHeads(pass, layer);
  Project(pass, "o", weights.o, pass.w.attended, pass.w.attention_partial, pass.w.hidden_stride,
          PhaseScope::kRanks);
}

}  // namespace pinion
