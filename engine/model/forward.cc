#include "engine/model/forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/trace.h"
#include "engine/model/attend.h"

namespace pinion {
namespace {

using kernels::Dtype;
using kernels::GemmArgs;
using kernels::kBlockN;

class ForwardPass {
 public:
  ForwardPass(LoadedModel& model, const Worker& worker, const StepBatch& batch)
      : model_(model),
        spec_(model.spec),
        table_(*model.table),
        worker_(worker),
        batch_(batch),
        weights_(model.weights[static_cast<size_t>(worker.rank)]),
        cache_(model.caches[static_cast<size_t>(worker.rank)]),
        w_(model.workspaces[static_cast<size_t>(worker.rank)]),
        scratch_(w_.threads[static_cast<size_t>(worker.thread)]),
        activation_(kernels::ActivationType(model.options.dtype)),
        rows_(batch.tokens.size()),
        hidden_(static_cast<size_t>(spec_.hidden)),
        head_dim_(static_cast<size_t>(spec_.head_dim)) {}

  void Run(const LogitsSink& sink) {
    Embed();
    for (size_t layer = 0; layer < weights_.layers.size(); ++layer) RunLayer(layer);
    AddMlp(weights_.layers.back());
    worker_.TeamBarrier();
    ComputeLogits(sink);
  }

 private:
  std::pair<size_t, size_t> OwnRows() const { return worker_.Slice(rows_); }

  // ---- Embedding and rotary angles: each thread its own rows.
  void Embed() {
    const TraceSpan span("embed");
    const auto [begin, end] = OwnRows();
    size_t slice = 0;
    for (size_t row = begin; row < end; ++row) {
      while (row >= batch_.slices[slice].first_row + batch_.slices[slice].rows) ++slice;
      const auto& of = batch_.slices[slice];
      const size_t position = of.first_position + row - of.first_row;
      float* residual = w_.residual + row * hidden_;
      ReadRow(model_.embedding, static_cast<size_t>(batch_.tokens[row]), residual);
      if (!model_.position_embedding.name.empty()) {
        float* learned =
            w_.attention_partial + row * w_.hidden_stride;  // free until the o projection
        ReadRow(model_.position_embedding, position + static_cast<size_t>(spec_.position_offset),
                learned);
        table_.add(residual, learned, hidden_);
      }
      if (spec_.rotary) FillAngles(row, position);
    }
  }

  void ReadRow(const TensorInfo& tensor, size_t row, float* dst) {
    const std::byte* src = model_.source->Rows(tensor, row, 1, scratch_.row);
    kernels::Convert(reinterpret_cast<std::byte*>(dst), Dtype::kF32, src, tensor.dtype, hidden_);
  }

  // The angle is rounded to float32 before cos and sin, as the reference does: at large positions
  // the rounding is larger than any error of the functions.
  void FillAngles(size_t row, size_t position) {
    const size_t half = head_dim_ / 2;
    for (size_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * spec_.rope_inv_freq[i];
      w_.cosine[row * half + i] = std::cos(angle) * spec_.rope_scale;
      w_.sine[row * half + i] = std::sin(angle) * spec_.rope_scale;
    }
  }

  // ---- One layer.
  void RunLayer(size_t index) {
    const LayerWeights& layer = weights_.layers[index];
    if (index > 0) AddMlp(weights_.layers[index - 1]);
    NormRows(layer.attention_norm, layer.attention_norm_bias);
    worker_.TeamBarrier();
    Project("qkv", layer.qkv, w_.normed, w_.qkv, w_.qkv_stride);
    worker_.TeamBarrier();
    RotateAndStore(layer, index);
    worker_.TeamBarrier();
    AttendLayer(index);
    worker_.TeamBarrier();
    Project("o", layer.o, w_.attended, w_.attention_partial, w_.hidden_stride);
    worker_.GlobalBarrier();
    AddAttention(layer);
    NormRows(layer.mlp_norm, layer.mlp_norm_bias);
    worker_.TeamBarrier();
    RunMlpIn(layer);
    worker_.TeamBarrier();
    Project("down", layer.down, w_.mlp, w_.mlp_partial, w_.hidden_stride);
    worker_.GlobalBarrier();
  }

  // dst[rows][...] = x * matrix^T for this thread's column blocks.
  void Project(const char* name, const PackedMatrix& matrix, const std::byte* x, float* dst,
               size_t stride) {
    const TraceSpan span(name);
    const auto [begin, end] = BlocksOf(worker_, matrix);
    if (begin == end) return;
    kernels::Gemm(table_, matrix.dtype,
                  GemmArgs{x, matrix.block(begin), dst + begin * kBlockN, rows_, matrix.k_padded(),
                           end - begin, stride});
  }

  void NormRows(const float* weight, const float* bias) {
    const TraceSpan span("norm");
    const size_t row_bytes = w_.normed_stride * kernels::SizeOf(activation_);
    const auto [begin, end] = OwnRows();
    for (size_t row = begin; row < end; ++row)
      Norm(w_.normed + row * row_bytes, w_.residual + row * hidden_, weight, bias);
  }

  void Norm(std::byte* dst, const float* src, const float* weight, const float* bias) {
    if (spec_.norm == NormKind::kRms)
      table_.rms_norm(dst, activation_, src, weight, hidden_, spec_.norm_eps);
    else
      table_.layer_norm(dst, activation_, src, weight, bias, hidden_, spec_.norm_eps);
  }

  // All-reduce: every rank adds every rank's partial term to its own residual, in the order of
  // ranks, so that all copies stay equal. One barrier before it is enough: the next write to a
  // partial buffer lies behind the other buffer's barrier. A rank whose share is empty has written
  // nothing and is left out.
  void AddReduced(float* Workspace::*partial, Range Shard::*share, const float* bias) {
    const TraceSpan span("add");
    const auto [begin, end] = OwnRows();
    for (size_t row = begin; row < end; ++row) {
      float* residual = w_.residual + row * hidden_;
      for (size_t rank = 0; rank < model_.workspaces.size(); ++rank)
        if ((model_.weights[rank].shard.*share).size() > 0)
          table_.add(residual, model_.workspaces[rank].*partial + row * w_.hidden_stride, hidden_);
      if (bias) table_.add(residual, bias, hidden_);
    }
  }
  void AddAttention(const LayerWeights& layer) {
    AddReduced(&Workspace::attention_partial, &Shard::q_heads, layer.o_bias);
  }
  void AddMlp(const LayerWeights& layer) {
    AddReduced(&Workspace::mlp_partial, &Shard::intermediate, layer.down_bias);
  }

  // ---- Attention.
  // Adds the bias, rotates queries and keys, and writes keys and values to the cache; work is cut
  // into (row, head) pairs so that one row keeps every thread busy.
  void RotateAndStore(const LayerWeights& layer, size_t index) {
    const TraceSpan span("rotary+store");
    const size_t q_heads = weights_.shard.q_heads.size(), kv_heads = weights_.shard.kv_heads.size();
    const size_t units = q_heads + kv_heads;
    const auto [begin, end] = worker_.Slice(rows_ * units);
    size_t slice = 0;
    for (size_t at = begin; at < end; ++at) {
      const size_t row = at / units, unit = at % units;
      while (row >= batch_.slices[slice].first_row + batch_.slices[slice].rows) ++slice;
      float* head = w_.qkv + row * w_.qkv_stride + unit * head_dim_;
      PrepareHead(head, layer.qkv_bias ? layer.qkv_bias + unit * head_dim_ : nullptr, row, true);
      if (unit < q_heads) continue;
      float* value = head + kv_heads * head_dim_;
      const float* bias = layer.qkv_bias ? layer.qkv_bias + (unit + kv_heads) * head_dim_ : nullptr;
      PrepareHead(value, bias, row, false);
      Store(batch_.slices[slice], row, index, unit - q_heads, head, value);
    }
  }

  void PrepareHead(float* head, const float* bias, size_t row, bool rotate) {
    if (bias) table_.add(head, bias, head_dim_);
    const size_t half = head_dim_ / 2;
    if (rotate && spec_.rotary)
      table_.rotary(head, w_.cosine + row * half, w_.sine + row * half, half);
  }

  void Store(const StepBatch::Slice& slice, size_t row, size_t layer, size_t head, const float* k,
             const float* v) {
    const size_t position = slice.first_position + row - slice.first_row;
    cache_.Write(table_, layer, head, slice.block_table, position, k, v);
  }

  void AttendLayer(size_t layer) {
    const TraceSpan span("attention", "layer", layer);
    Attend({.table = table_,
            .batch = batch_,
            .shard = weights_.shard,
            .cache = cache_,
            .layer = layer,
            .spec = LayerAttention(spec_, layer),
            .plan = w_.plans.of_layer(layer),
            .q = w_.qkv,
            .q_stride = w_.qkv_stride,
            .sinks = nullptr,
            .dst = w_.attended,
            .dst_stride = w_.attended_stride,
            .dst_type = activation_,
            .parts = w_.parts.data(),
            .next_item = w_.next_item[layer]},
           worker_, scratch_.part);
  }

  // ---- MLP.
  // The input projection goes through a tile of one (plain) or two (gated) blocks, which is
  // activated while it is in cache: the wide float32 result never reaches memory.
  void RunMlpIn(const LayerWeights& layer) {
    const TraceSpan span("mlp_in");
    const bool gated = spec_.mlp == MlpKind::kSiluGated;
    const size_t unit = gated ? 2 : 1;
    const PackedMatrix& matrix = layer.mlp_in;
    const auto [begin, end] = BlocksOf(worker_, matrix, unit);
    for (size_t block = begin; block < end; block += unit)
      for (size_t row = 0; row < rows_; row += kMlpTileRows)
        RunMlpTile(layer, block, unit, row, std::min(kMlpTileRows, rows_ - row));
  }

  void RunMlpTile(const LayerWeights& layer, size_t block, size_t unit, size_t row, size_t rows) {
    const PackedMatrix& matrix = layer.mlp_in;
    const size_t element = kernels::SizeOf(activation_), stride = unit * kBlockN;
    float* tile = scratch_.mlp_tile;
    kernels::Gemm(table_, matrix.dtype,
                  GemmArgs{w_.normed + row * w_.normed_stride * element, matrix.block(block), tile,
                           rows, matrix.k_padded(), unit, stride});
    const size_t column = block / unit * kBlockN;
    const size_t live = std::min(kBlockN, weights_.shard.intermediate.size() - column);
    for (size_t i = 0; i < rows; ++i) {
      float* in = tile + i * stride;
      if (layer.mlp_in_bias) table_.add(in, layer.mlp_in_bias + block * kBlockN, stride);
      std::byte* dst = w_.mlp + ((row + i) * w_.mlp_stride + column) * element;
      if (unit == 2)
        table_.silu_mul(dst, activation_, in, in + kBlockN, live);
      else
        table_.relu(dst, activation_, in, live);
    }
  }

  // ---- Head.
  void ComputeLogits(const LogitsSink& sink) {
    for (size_t first = 0; first < batch_.logit_rows.size(); first += kLogitChunk) {
      const size_t count = std::min(kLogitChunk, batch_.logit_rows.size() - first);
      NormWanted(first, count);
      worker_.TeamBarrier();
      RunHead(count);
      worker_.GlobalBarrier();
      if (worker_.rank == 0) sink(worker_, first, count, model_.logits, model_.logits_stride);
      worker_.GlobalBarrier();
    }
  }

  void RunHead(size_t rows) {
    const TraceSpan span("head", "rows", rows);
    const PackedMatrix& head = weights_.head;
    const auto [begin, end] = BlocksOf(worker_, head);
    if (begin == end) return;
    kernels::Gemm(table_, head.dtype,
                  GemmArgs{w_.normed, head.block(begin),
                           model_.logits + weights_.shard.vocabulary.begin + begin * kBlockN, rows,
                           head.k_padded(), end - begin, model_.logits_stride});
  }

  void NormWanted(size_t first, size_t count) {
    const size_t row_bytes = w_.normed_stride * kernels::SizeOf(activation_);
    const auto [begin, end] = worker_.Slice(count);
    for (size_t i = begin; i < end; ++i) {
      const auto row = static_cast<size_t>(batch_.logit_rows[first + i]);
      Norm(w_.normed + i * row_bytes, w_.residual + row * hidden_, weights_.final_norm,
           weights_.final_norm_bias);
    }
  }

  LoadedModel& model_;
  const DecoderSpec& spec_;
  const kernels::Table& table_;
  const Worker& worker_;
  const StepBatch& batch_;
  const RankWeights& weights_;
  KvCache& cache_;
  Workspace& w_;
  ThreadScratch& scratch_;
  const Dtype activation_;
  const size_t rows_, hidden_, head_dim_;
};

}  // namespace

void RunForward(LoadedModel& model, const Worker& worker, const StepBatch& batch,
                const LogitsSink& sink) {
  ForwardPass(model, worker, batch).Run(sink);
}

}  // namespace pinion
