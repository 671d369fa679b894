// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): the cache holds one latent and one
// rotary key per token for all heads. Queries are projected into the latent space and attend there
// as the query heads of a single KV head. The result is a weighted sum of latents, from which each
// head computes its values.

#include <algorithm>
#include <cstring>

#include "engine/base/trace.h"
#include "engine/decoder/attend.h"
#include "engine/decoder/forward_pass.h"

namespace pinion {
namespace {

using kernels::Dtype;
using kernels::kBlockN;

// The epsilon of the norms inside attention; config.json's is that of the other norms only.
constexpr float kNormEps = 1e-6f;

struct Latent {
  Latent(const ForwardPass& pass, size_t index)
      : pass(pass),
        index(index),
        place(pass.model.kv_places[index]),
        layer(pass.weights.layers[index]),
        weights(layer.latent),
        buffers(pass.w.latent),
        heads(pass.weights.shard.q_heads.size()),
        nope(static_cast<size_t>(pass.spec.latent.nope_dim)),
        rope(static_cast<size_t>(pass.spec.latent.rope_dim)),
        rank(static_cast<size_t>(pass.spec.latent.kv_rank)),
        q_rank(static_cast<size_t>(pass.spec.latent.q_rank)) {}

  const ForwardPass& pass;
  const size_t index;  // of the layer
  const KvPlace place;
  const LayerWeights& layer;
  const LatentWeights& weights;
  const LatentBuffers& buffers;
  const size_t heads, nope, rope, rank, q_rank;

  size_t element() const { return kernels::SizeOf(pass.activation); }
  // A row's projections: queries (or their compressed form), then the latent and the rotary key.
  float* projected(size_t row) const { return pass.w.qkv + row * pass.w.qkv_stride; }
  float* key(size_t row) const {
    return projected(row) + (q_rank > 0 ? q_rank : heads * (nope + rope));
  }
  const float* query(size_t row, size_t head) const {
    const float* all = q_rank > 0 ? buffers.queries + row * buffers.queries_stride : projected(row);
    return all + head * (nope + rope);
  }
  // The query in the latent space: [rank + rope].
  float* latent_query(size_t row, size_t head) const {
    return buffers.latent_queries + row * buffers.latent_queries_stride + head * (rank + rope);
  }
};

void Rotate(const Latent& latent, size_t row, float* x) {
  const ForwardPass& pass = latent.pass;
  const int rope = pass.spec.layer_specs[latent.index].rope;
  if (rope < 0) return;
  const auto which = static_cast<size_t>(rope);
  const size_t half = latent.rope / 2;
  const auto [cosine, sine] = pass.w.angles[which].row(row, half);
  const auto rotate =
      pass.spec.ropes[which].interleaved ? pass.table.rotary_pairs : pass.table.rotary;
  rotate(x, cosine, sine, half);
}

// Normalises and stores the latents, and normalises compressed queries. A matrix that makes keys
// and values of latents is multiplied with queries and with sums of latents in this engine: if it
// wants its input rounded, they are rounded where they are stored.
void StoreLatents(const Latent& latent, size_t begin, size_t end) {
  const TraceSpan span("latents+store");
  const ForwardPass& pass = latent.pass;
  size_t slice = 0;
  for (size_t row = begin; row < end; ++row) {
    while (row >= pass.batch.slices[slice].first_row + pass.batch.slices[slice].rows) ++slice;
    const StepBatch::Slice& of = pass.batch.slices[slice];
    float* key = latent.key(row);
    pass.table.rms_norm(key, Dtype::kF32, key, latent.layer.k_norm, latent.rank, kNormEps);
    if (const auto& rounding = latent.weights.rounding)
      pass.e4m3.round({key, key, Dtype::kF32, latent.rank, *rounding});
    Rotate(latent, row, key + latent.rank);
    pass.cache.Write(pass.table, latent.place.layer, 0, of.block_tables[latent.place.table],
                     {of.first_position + row - of.first_row, key, nullptr});
    if (latent.q_rank == 0) continue;
    std::byte* dst =
        latent.buffers.compressed + row * latent.weights.q_up.k_padded() * latent.element();
    pass.table.rms_norm(dst, pass.activation, latent.projected(row), latent.layer.q_norm,
                        latent.q_rank, kNormEps);
  }
}

// Shows the observer the latents: keys and values are computed from them.
void ObserveLatents(const Latent& latent) {
  const ForwardPass& pass = latent.pass;
  const auto* latents = reinterpret_cast<const std::byte*>(latent.key(0));
  Observe(pass, {static_cast<int>(latent.index), MatrixRole::kLatentUp, latents, Dtype::kF32,
                 pass.rows, latent.rank, pass.w.qkv_stride});
}

// A phase: body(head, first row, rows) for all heads and rows.
template <typename Body>
void ForHeads(const char* name, const Latent& latent, const Body& body) {
  const TraceSpan span(name);
  const ForwardPass& pass = latent.pass;
  const size_t tiles = (pass.rows + kMlpTileRows - 1) / kMlpTileRows;
  pass.worker.Share(latent.heads * tiles, 1, [&](size_t at, size_t) {
    const size_t row = at % tiles * kMlpTileRows;
    body(at / tiles, row, std::min(kMlpTileRows, pass.rows - row));
  });
}

// Multiplies the rows in latent_tile by one head's matrix, a block of outputs at a time:
//   take(output, count, product [rows][64]).
template <typename Take>
void Multiply(const Latent& latent, const PackedMatrix& matrix, size_t first_block, size_t outputs,
              size_t rows, const Take& take) {
  const ForwardPass& pass = latent.pass;
  float* product = pass.scratch.mlp_tile;
  for (size_t output = 0; output < outputs; output += kBlockN) {
    kernels::Gemm(pass.table, matrix.dtype,
                  {pass.scratch.latent_tile, matrix.block(first_block + output / kBlockN), product,
                   rows, matrix.k_padded(), 1, kBlockN});
    take(output, std::min(kBlockN, outputs - output), product);
  }
}

// Projects queries into the latent space and rotates their rotary parts.
void AbsorbQueries(const Latent& latent, size_t head, size_t first, size_t rows) {
  const ForwardPass& pass = latent.pass;
  const PackedMatrix& up = latent.weights.key_up;
  const size_t row_bytes = up.k_padded() * latent.element();
  for (size_t i = 0; i < rows; ++i) {
    const float* query = latent.query(first + i, head);
    std::byte* x = pass.scratch.latent_tile + i * row_bytes;
    pass.table.store(x, pass.activation, query, latent.nope);
    std::memset(x + latent.nope * latent.element(), 0, row_bytes - latent.nope * latent.element());
    float* rotary = latent.latent_query(first + i, head) + latent.rank;
    std::copy_n(query + latent.nope, latent.rope, rotary);
    Rotate(latent, first + i, rotary);
  }
  Multiply(latent, up, head * latent.weights.key_blocks, latent.rank, rows,
           [&](size_t output, size_t count, const float* product) {
             for (size_t i = 0; i < rows; ++i)
               std::copy_n(product + i * kBlockN, count,
                           latent.latent_query(first + i, head) + output);
           });
}

void AttendLatents(const Latent& latent) {
  const TraceSpan span("attention", "layer", latent.index);
  const ForwardPass& pass = latent.pass;
  Attend({.table = pass.table,
          .batch = pass.batch,
          .heads = pass.weights.shard,
          .cache = pass.cache,
          .place = latent.place,
          .spec = LayerAttention(pass.spec, latent.index),
          .plan = pass.w.plans.of_layer(latent.index)[pass.batch.place.part],
          .q = latent.buffers.latent_queries,
          .q_stride = latent.buffers.latent_queries_stride,
          .sinks = nullptr,
          .dst = pass.w.attended,
          .dst_stride = pass.w.attended_stride,
          .dst_type = pass.activation,
          .parts = pass.w.parts.data()},
         pass.worker, pass.scratch.part);
}

// Computes one head's values from its weighted sums of latents.
void ExpandValues(const Latent& latent, size_t head, size_t first, size_t rows) {
  const ForwardPass& pass = latent.pass;
  const PackedMatrix& up = latent.weights.value_up;
  const size_t element = latent.element(), row_bytes = up.k_padded() * element;
  for (size_t i = 0; i < rows; ++i) {
    std::byte* x = pass.scratch.latent_tile + i * row_bytes;
    std::memcpy(
        x, pass.w.attended + ((first + i) * pass.w.attended_stride + head * latent.rank) * element,
        latent.rank * element);
    std::memset(x + latent.rank * element, 0, row_bytes - latent.rank * element);
  }
  const auto value_dim = static_cast<size_t>(pass.spec.latent.value_dim);
  const size_t stride = latent.layer.o.k_padded();
  Multiply(latent, up, head * latent.weights.value_blocks, value_dim, rows,
           [&](size_t output, size_t count, const float* product) {
             for (size_t i = 0; i < rows; ++i)
               pass.table.store(latent.buffers.values +
                                    ((first + i) * stride + head * value_dim + output) * element,
                                pass.activation, product + i * kBlockN, count);
           });
}

}  // namespace

void RunLatentAttention(const ForwardPass& pass, size_t layer) {
  const Latent latent(pass, layer);
  if (latent.heads > 0) {
    Project(pass, "latent_down", latent.layer.qkv, pass.w.normed, pass.w.qkv, pass.w.qkv_stride);
    pass.worker.Share(pass.rows,
                      [&](size_t begin, size_t end) { StoreLatents(latent, begin, end); });
    ObserveLatents(latent);
    if (latent.q_rank > 0)
      Project(pass, "queries_up", latent.weights.q_up, latent.buffers.compressed,
              latent.buffers.queries, latent.buffers.queries_stride);
    ForHeads("absorb queries", latent,
             [&](size_t head, size_t row, size_t rows) { AbsorbQueries(latent, head, row, rows); });
    if (pass.spec.index.heads > 0) IndexTokens(pass, layer);
    AttendLatents(latent);
    if (pass.spec.index.heads > 0) AttendChosen(pass, layer);
    ForHeads("expand values", latent,
             [&](size_t head, size_t row, size_t rows) { ExpandValues(latent, head, row, rows); });
  }
  Project(pass, "o", latent.layer.o, latent.buffers.values, pass.w.attention_partial,
          pass.w.hidden_stride, PhaseScope::kRanks);
}

}  // namespace pinion
