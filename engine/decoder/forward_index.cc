// Sparse attention (DeepSeek-V3.2, arXiv:2512.02556): an indexer scores the tokens that a token
// sees, and it attends to those that score highest. Rows that see no more than it would choose
// attend to everything (forward_latent.cc).

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

#include "engine/base/trace.h"
#include "engine/decoder/attend.h"
#include "engine/decoder/choose_tokens.h"
#include "engine/decoder/forward_pass.h"
#include "kernels/kv_gather.h"

namespace pinion {
namespace {

using kernels::Dtype;
using kernels::kBlockN;

constexpr float kIndexNormEps = 1e-6f;  // as of the norms inside latent attention
// Tokens that a thread scores at a time: four packed blocks.
constexpr size_t kScoreTokens = 4 * kBlockN;

struct Indexer {
  Indexer(const ForwardPass& pass, size_t layer)
      : pass(pass),
        layer(layer),
        place(pass.model.kv_places[layer]),
        weights(pass.weights.layers[layer].index),
        buffers(pass.w.index),
        rows(buffers.RowsOf(pass.batch.place.part)),
        heads(static_cast<size_t>(pass.spec.index.heads)),
        dim(static_cast<size_t>(pass.spec.index.dim)),
        top_k(static_cast<size_t>(pass.spec.index.top_k)) {}

  const ForwardPass& pass;
  const size_t layer;
  const KvPlace place;
  const IndexWeights& weights;
  IndexBuffers& buffers;
  const std::span<const ChoosingRow> rows;
  const size_t heads, dim, top_k;

  float* key(size_t row) const { return buffers.projected + row * buffers.projected_stride; }
  const float* head_weights(size_t row) const { return key(row) + dim; }
  std::byte* rounded(size_t row) const { return buffers.rounded + row * buffers.row_bytes; }
  Dtype key_type() const { return pass.activation; }
  size_t key_bytes() const { return dim * kernels::SizeOf(key_type()); }
  size_t dim_padded() const { return kernels::RoundUp(dim, kernels::kPadK); }
};

// Keys and queries are rotated by halves, whatever latent attention does.
void Rotate(const Indexer& index, size_t row, float* x) {
  const ForwardPass& pass = index.pass;
  const int rope = pass.spec.layer_specs[index.layer].rope;
  if (rope < 0) return;
  const auto which = static_cast<size_t>(rope);
  const size_t half = static_cast<size_t>(pass.spec.ropes[which].dim) / 2;
  const auto [cosine, sine] = pass.w.angles[which].row(row, half);
  pass.table.rotary(x, cosine, sine, half);
}

// ---- Keys of all rows, queries of those that choose.

void StoreKeys(const Indexer& index, size_t begin, size_t end) {
  const TraceSpan span("index keys");
  const ForwardPass& pass = index.pass;
  const size_t block_tokens = pass.cache.block_tokens();
  size_t slice = 0;
  for (size_t row = begin; row < end; ++row) {
    while (row >= pass.batch.slices[slice].first_row + pass.batch.slices[slice].rows) ++slice;
    const StepBatch::Slice& of = pass.batch.slices[slice];
    const size_t position = of.first_position + row - of.first_row;
    float* key = index.key(row);
    pass.table.layer_norm(key, Dtype::kF32, key, index.weights.k_norm, index.weights.k_norm_bias,
                          index.dim, kIndexNormEps);
    Rotate(index, row, key);
    std::byte* block = pass.cache.index_keys(
        index.place.layer, of.block_tables[index.place.table][position / block_tokens]);
    pass.table.convert(block + position % block_tokens * index.key_bytes(), index.key_type(),
                       reinterpret_cast<const std::byte*>(key), Dtype::kF32, index.dim);
  }
}

void RoundQueries(const Indexer& index, size_t begin, size_t end) {
  const TraceSpan span("index queries");
  const ForwardPass& pass = index.pass;
  const size_t element = kernels::SizeOf(pass.activation);
  for (size_t i = begin; i < end; ++i) {
    const size_t row = index.rows[i].row;
    float* queries = index.buffers.queries + row * index.buffers.queries_stride;
    for (size_t head = 0; head < index.heads; ++head) {
      float* query = queries + head * index.dim;
      Rotate(index, row, query);
      // Padding columns of the workspace are zero and stay so.
      pass.table.store(index.rounded(row) + head * index.dim_padded() * element, pass.activation,
                       query, index.dim);
    }
  }
}

// ---- Scores.

// The keys of kBlockN tokens from `first` on, packed as a matrix of as many outputs; those from
// `end` on are zero.
const std::byte* PackKeys(const Indexer& index, const int32_t* block_table, size_t first,
                          size_t end) {
  const ForwardPass& pass = index.pass;
  const size_t bytes = index.key_bytes(), block_tokens = pass.cache.block_tokens();
  const size_t tokens = std::min(kBlockN, end - first);
  const size_t packed_bytes = kernels::PackedBlockBytes(index.key_type(), index.dim);
  std::vector<std::byte>& storage = pass.scratch.index_keys;
  storage.resize(packed_bytes + kBlockN * bytes + 64);
  void* aligned = storage.data();
  size_t space = storage.size();
  auto* packed = static_cast<std::byte*>(std::align(64, packed_bytes, aligned, space));
  std::byte* rows = packed + packed_bytes;
  for (size_t done = 0; done < tokens;) {
    const size_t position = first + done, slot = position % block_tokens;
    const size_t count = std::min(block_tokens - slot, tokens - done);
    const std::byte* block =
        pass.cache.index_keys(index.place.layer, block_table[position / block_tokens]);
    std::memcpy(rows + done * bytes, block + slot * bytes, count * bytes);
    done += count;
  }
  kernels::PackBlock(packed, index.key_type(), rows, index.key_type(), index.dim, tokens,
                     index.dim);
  return packed;
}

// scores[position] for up to kScoreTokens positions from `first` on. The common factor of all
// scores (1 / sqrt(dim * heads)) changes no choice and is left out.
void ScoreTokens(const Indexer& index, const ChoosingRow& row, size_t first, float* scores) {
  const ForwardPass& pass = index.pass;
  const int32_t* table = pass.batch.slices[row.slice].block_tables[index.place.table];
  const float* weights = index.head_weights(row.row);
  float* products = pass.scratch.index_products;
  const size_t end = std::min<size_t>(first + kScoreTokens, row.position + 1);
  for (; first < end; first += kBlockN) {
    const std::byte* keys = PackKeys(index, table, first, end);
    kernels::Gemm(
        pass.table, index.key_type(),
        {index.rounded(row.row), keys, products, index.heads, index.dim_padded(), 1, kBlockN});
    pass.table.activate(products, Dtype::kF32, kernels::Activation::kRelu, products,
                        index.heads * kBlockN);
    std::fill_n(scores + first, kBlockN, 0.0f);
    for (size_t head = 0; head < index.heads; ++head)
      pass.table.add_scaled(scores + first, products + head * kBlockN, weights[head], kBlockN);
  }
}

// Scores of `count` rows from `first` on, then their choices.
void Choose(const Indexer& index, size_t first, size_t count) {
  const TraceSpan span("choose tokens", "layer", index.layer);
  IndexBuffers& buffers = index.buffers;
  const size_t pieces = (buffers.scores_stride + kScoreTokens - 1) / kScoreTokens;
  index.pass.worker.ShareOneByOne(count * pieces, [&](size_t i) {
    const ChoosingRow& row = index.rows[first + i / pieces];
    const size_t token = i % pieces * kScoreTokens;
    if (token > row.position) return;
    ScoreTokens(index, row, token, buffers.scores.data() + i / pieces * buffers.scores_stride);
  });
  index.pass.worker.ShareOneByOne(count, [&](size_t i) {
    ChooseTokens(buffers.scores.data() + i * buffers.scores_stride,
                 size_t{index.rows[first + i].position} + 1, index.top_k,
                 buffers.chosen.data() + i * index.top_k, index.pass.scratch.index_scores);
  });
}

// ---- Attention over the chosen.

struct IndexPart {
  float *out, *max, *sum;
};

IndexPart PartAt(const KvShape& shape, float* storage) {
  float* max = storage + kernels::kAttentionRows * shape.value_dim;
  return {storage, max, max + kernels::kAttentionRows};
}

float* PartOf(const Indexer& index, size_t row, size_t cut, size_t group) {
  IndexBuffers& buffers = index.buffers;
  const size_t groups = index.pass.weights.shard.groups.size();
  return buffers.parts.data() + ((row * buffers.cuts + cut) * groups + group) *
                                    PartFloats(index.pass.cache.shape(index.place.layer));
}

void MergeParts(const Indexer& index, const ChoosingRow& row, size_t group_index,
                const std::vector<kernels::AttentionPart>& parts) {
  const ForwardPass& pass = index.pass;
  const HeadGroup& group = pass.weights.shard.groups[group_index];
  const size_t value_dim = pass.cache.shape(index.place.layer).value_dim;
  const size_t at = row.row * pass.w.attended_stride + group.first_q_head * value_dim;
  pass.table.attention_merge({.parts = parts.data(),
                              .parts_count = parts.size(),
                              .tokens = 1,
                              .group = group.q_heads,
                              .value_dim = value_dim,
                              .sinks = nullptr,
                              .dst = pass.w.attended + at * kernels::SizeOf(pass.activation),
                              .dst_stride = pass.w.attended_stride,
                              .dst_type = pass.activation});
}

// One head group of one row over gathered tokens.
void AttendGathered(const Indexer& index, const ChoosingRow& row, const HeadGroup& group,
                    const std::byte* gathered, size_t count, const IndexPart& part) {
  const ForwardPass& pass = index.pass;
  const KvCache& cache = pass.cache;
  const KvShape& shape = cache.shape(index.place.layer);
  const size_t block =
      kernels::KvPlaneBlockBytes(cache.dtype(), cache.block_tokens(), shape.key_dim);
  const float* q = pass.w.latent.latent_queries + row.row * pass.w.latent.latent_queries_stride +
                   group.first_q_head * shape.key_dim;
  const auto last = static_cast<int64_t>(count) - 1;
  const AttentionSpec spec = LayerAttention(pass.spec, index.layer);
  pass.table.attention({.q = &q,
                        .positions = &last,
                        .tokens = 1,
                        .group = group.q_heads,
                        .key_dim = shape.key_dim,
                        .value_dim = shape.value_dim,
                        .window = kernels::kNoWindow,
                        .context_begin = 0,
                        .context_end = last + 1,
                        .keys = gathered,
                        .values = nullptr,
                        .key_strides = {block, block, 0},
                        .value_strides = {},
                        .block_table = index.buffers.own_blocks.data(),
                        .block_tokens = cache.block_tokens(),
                        .dtype = cache.dtype(),
                        .scale = spec.scale,
                        .soft_cap = spec.soft_cap,
                        .out = part.out,
                        .max = part.max,
                        .sum = part.sum});
}

// Cut `cut` of the row at place `at` among those that are computed together.
void AttendCut(const Indexer& index, size_t first, size_t at, size_t cut) {
  const ForwardPass& pass = index.pass;
  const KvCache& cache = pass.cache;
  const IndexBuffers& buffers = index.buffers;
  const ChoosingRow& row = index.rows[first + at];
  const size_t begin = cut * buffers.cut_tokens;
  const size_t count = std::min(buffers.cut_tokens, index.top_k - begin);
  const size_t blocks = (count + cache.block_tokens() - 1) / cache.block_tokens();
  std::vector<std::byte>& storage = pass.scratch.gathered;
  storage.resize(
      blocks * cache.shape(index.place.layer).BlockBytes(cache.dtype(), cache.block_tokens()) + 64);
  void* aligned = storage.data();
  size_t space = storage.size();
  auto* gathered = static_cast<std::byte*>(std::align(64, space - 64, aligned, space));
  const auto& groups = pass.weights.shard.groups;
  kernels::GatherKeys({.keys = cache.keys(index.place.layer, groups[0].kv_head),
                       .strides = cache.key_strides(index.place.layer),
                       .block_table = pass.batch.slices[row.slice].block_tables[index.place.table],
                       .positions = buffers.chosen.data() + at * index.top_k + begin,
                       .count = count,
                       .block_tokens = cache.block_tokens(),
                       .key_dim = cache.shape(index.place.layer).key_dim,
                       .dtype = cache.dtype(),
                       .dst = gathered});
  for (size_t g = 0; g < groups.size(); ++g) {
    const bool whole = buffers.cuts == 1;
    const IndexPart part = PartAt(cache.shape(index.place.layer),
                                  whole ? pass.scratch.part : PartOf(index, at, cut, g));
    AttendGathered(index, row, groups[g], gathered, count, part);
    if (whole) MergeParts(index, row, g, {{part.out, part.max, part.sum}});
  }
}

void AttendRows(const Indexer& index, size_t first, size_t count) {
  const TraceSpan span("attention of chosen", "layer", index.layer);
  const size_t cuts = index.buffers.cuts, groups = index.pass.weights.shard.groups.size();
  index.pass.worker.ShareOneByOne(count * cuts,
                                  [&](size_t i) { AttendCut(index, first, i / cuts, i % cuts); });
  if (cuts == 1) return;
  index.pass.worker.ShareOneByOne(count * groups, [&](size_t i) {
    std::vector<kernels::AttentionPart> parts;
    for (size_t cut = 0; cut < cuts; ++cut) {
      const IndexPart part = PartAt(index.pass.cache.shape(index.place.layer),
                                    PartOf(index, i / groups, cut, i % groups));
      parts.push_back({part.out, part.max, part.sum});
    }
    MergeParts(index, index.rows[first + i / groups], i % groups, parts);
  });
}

}  // namespace

void IndexTokens(const ForwardPass& pass, size_t layer) {
  const Indexer index(pass, layer);
  const IndexBuffers& buffers = index.buffers;
  Project(pass, "index_keys", index.weights.k, pass.w.normed, buffers.projected,
          buffers.projected_stride);
  pass.worker.Share(pass.rows, [&](size_t begin, size_t end) { StoreKeys(index, begin, end); });
  if (index.rows.empty()) return;
  Project(pass, "index_queries", index.weights.q, pass.w.latent.compressed, buffers.queries,
          buffers.queries_stride);
  pass.worker.Share(index.rows.size(),
                    [&](size_t begin, size_t end) { RoundQueries(index, begin, end); });
}

void AttendChosen(const ForwardPass& pass, size_t layer) {
  const Indexer index(pass, layer);
  const size_t all = index.rows.size();
  for (size_t first = 0; first < all; first += kIndexRows) {
    const size_t count = std::min(kIndexRows, all - first);
    Choose(index, first, count);
    AttendRows(index, first, count);
  }
}

}  // namespace pinion
