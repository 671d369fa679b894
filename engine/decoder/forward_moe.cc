// Mixture of experts: every token chooses its experts, each expert computes the tokens that chose
// it, and a token's output is the weighted sum of its experts' outputs. A shared MLP, if there is
// one, is computed beside them.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/trace.h"
#include "engine/decoder/forward_pass.h"
#include "engine/weights/expert_packer.h"

namespace pinion {
namespace {

using kernels::Dtype;
using kernels::kBlockN;

struct Moe {
  Moe(const ForwardPass& pass, size_t layer)
      : pass(pass),
        layer(pass.weights.layers[layer]),
        experts(this->layer.experts),
        plain(experts.prepacked() ? nullptr : pass.model.plain_experts[layer].get()),
        buffers(pass.w.experts),
        work(*buffers.work),
        count(static_cast<size_t>(pass.spec.moe.router.experts)),
        top_k(static_cast<size_t>(pass.spec.moe.router.top_k)) {}

  const ForwardPass& pass;
  const LayerWeights& layer;
  const ExpertWeights& experts;
  const PlainExperts* plain;  // packed from, block by block; null: prepacked
  const ExpertBuffers& buffers;
  ExpertWork& work;
  const size_t count, top_k;  // of experts; of those that a token chooses

  // What the experts take.
  const std::byte* normed() const { return buffers.normed ? buffers.normed : pass.w.normed; }
  size_t element() const { return kernels::SizeOf(pass.activation); }
  float* out(size_t assignment) const { return buffers.out + assignment * pass.w.hidden_stride; }
  std::byte* mlp(size_t assignment) const {
    return buffers.mlp + assignment * experts.down.k_padded() * element();
  }
};

// ---- Choosing.

// The router has few blocks of outputs, so rows are cut too: otherwise many threads would be idle.
void RunRouter(const Moe& moe) {
  const TraceSpan span("router");
  const ForwardPass& pass = moe.pass;
  const PackedMatrix& router = moe.experts.router;
  const size_t blocks = router.blocks(), stride = moe.buffers.logits_stride;
  const auto threads = static_cast<size_t>(pass.worker.threads);
  const size_t tiles = std::min(pass.rows, (threads + blocks - 1) / blocks);
  pass.worker.Share(blocks * tiles, 1, [&](size_t piece, size_t) {
    const size_t block = piece % blocks, tile = piece / blocks;
    const size_t row = pass.rows * tile / tiles, next = pass.rows * (tile + 1) / tiles;
    const float* x = moe.buffers.router_in ? moe.buffers.router_in + row * pass.w.normed_stride
                                           : reinterpret_cast<const float*>(pass.normed(row));
    float* y = moe.buffers.logits + row * stride + block * kBlockN;
    kernels::Gemm(pass.table, router.dtype,
                  {x, router.block(block), y, next - row, router.k_padded(), 1, stride});
  });
}

void Choose(const Moe& moe, size_t begin, size_t end) {
  const TraceSpan span("choose");
  for (size_t row = begin; row < end; ++row) {
    float* logits = moe.buffers.logits + row * moe.buffers.logits_stride;
    if (moe.experts.router_bias) moe.pass.table.add(logits, moe.experts.router_bias, moe.count);
    moe.pass.scratch.router->Route(logits, moe.experts.correction,
                                   moe.buffers.chosen + row * moe.top_k,
                                   moe.buffers.weights + row * moe.top_k);
    if (!moe.experts.weight_scale) continue;
    for (size_t i = row * moe.top_k; i < (row + 1) * moe.top_k; ++i)
      moe.buffers.weights[i] *= moe.experts.weight_scale[moe.buffers.chosen[i]];
  }
}

void PlanWork(const Moe& moe) {
  const TraceSpan span("plan experts");
  ExpertWork& work = moe.work;
  const auto threads = static_cast<size_t>(moe.pass.worker.threads);
  work.plan.Build(moe.buffers.chosen, moe.pass.rows, moe.top_k, moe.count);
  // In units of the blocks that one thread activates together.
  work.plan.Cut(moe.experts.in_blocks / moe.experts.unit, threads, work.in_items);
  work.plan.Cut(moe.experts.down_blocks, threads, work.down_items);
  // Relaxed: the end of this phase publishes the values, and a late thread has no items to take.
  work.in_count.store(work.in_items.size(), std::memory_order_relaxed);
  work.down_count.store(work.down_items.size(), std::memory_order_relaxed);
  work.weight_bytes_read += work.plan.experts_touched() * moe.experts.bytes_per_expert();
}

// ---- Rounding, for experts that are multiplied with activations of 8 bits.

// Rounds rows [begin, end) of activations at src to dst.
void RoundRows(const ForwardPass& pass, const PackedMatrix& matrix, const std::byte* src,
               std::byte* dst, size_t begin, size_t end) {
  const size_t src_bytes = matrix.k_padded() * kernels::SizeOf(pass.activation);
  const size_t dst_bytes = matrix.prepared_row_bytes(pass.activation);
  for (size_t row = begin; row < end; ++row)
    PrepareRow(pass, matrix, src + row * src_bytes, dst + row * dst_bytes);
}

void RoundTokens(const Moe& moe, size_t begin, size_t end) {
  if (moe.experts.in.prepares())
    RoundRows(moe.pass, moe.experts.in, moe.normed(), moe.buffers.rounded, begin, end);
}

// A phase of its own, or nothing if the second matrices take activations unrounded.
void RoundAssignments(const Moe& moe) {
  if (!moe.experts.down.prepares()) return;
  moe.pass.worker.Share(moe.pass.rows * moe.top_k, [&](size_t begin, size_t end) {
    RoundRows(moe.pass, moe.experts.down, moe.buffers.mlp, moe.buffers.rounded_mlp, begin, end);
  });
}

// ---- Computing.

// `count` consecutive packed blocks of in or down, valid until the next call.
using PackFn = void (*)(const PlainExperts&, Range, const ExpertWeights&, size_t, std::byte*,
                        ExpertScratch&);
const std::byte* Blocks(const Moe& moe, const PackedMatrix& matrix, PackFn pack, size_t block,
                        size_t count) {
  if (!moe.plain) return matrix.block(block);
  ThreadScratch& scratch = moe.pass.scratch;
  scratch.packed_experts.resize(count * matrix.block_bytes() + 64);
  void* aligned = scratch.packed_experts.data();
  size_t space = scratch.packed_experts.size();
  auto* dst = static_cast<std::byte*>(std::align(64, count * matrix.block_bytes(), aligned, space));
  for (size_t i = 0; i < count; ++i)
    pack(*moe.plain, moe.pass.weights.shard.expert_intermediate, moe.experts, block + i,
         dst + i * matrix.block_bytes(), scratch.plain_experts);
  return dst;
}

// The rows of assignments [first, first + count) one after the other.
const std::byte* GatherRows(const Moe& moe, size_t first, size_t count) {
  const PackedMatrix& in = moe.experts.in;
  const size_t bytes = in.prepared_row_bytes(moe.pass.activation);
  const std::byte* rows = in.prepares() ? moe.buffers.rounded : moe.normed();
  std::byte* tile = moe.pass.scratch.expert_tile;
  for (size_t i = 0; i < count; ++i)
    std::memcpy(tile + i * bytes, rows + moe.work.plan.row(first + i) * bytes, bytes);
  return tile;
}

// A tile of gate and up blocks with GPT-OSS's activation, of which `live` outputs are wanted.
void ClampTile(const Moe& moe, float* tile, size_t count, size_t live, const float* bias,
               size_t first, size_t column) {
  const ForwardPass& pass = moe.pass;
  const MoeSpec& spec = pass.spec.moe;
  constexpr size_t kStride = 2 * kBlockN;
  for (size_t i = 0; i < count; ++i) {
    float* gate = tile + i * kStride;
    if (bias) pass.table.add(gate, bias, kStride);
    pass.table.clamped_swiglu(moe.mlp(first + i) + column * moe.element(), pass.activation, gate,
                              gate + kBlockN, live, spec.swiglu_alpha, spec.swiglu_limit);
  }
}

// One gate and one up block, or without gates one block, of an expert over assignments [first,
// first + count), whose inputs are x: activated while the products are in cache, as in the dense
// MLP.
void RunUnit(const Moe& moe, size_t block, const std::byte* x, size_t first, size_t count) {
  const ForwardPass& pass = moe.pass;
  const MoeSpec& spec = pass.spec.moe;
  const PackedMatrix& in = moe.experts.in;
  const size_t unit = moe.experts.unit, stride = unit * kBlockN;
  float* tile = pass.scratch.mlp_tile;
  MultiplyBlocks(pass, in,
                 {x, Blocks(moe, in, PackExpertIn, block, unit), tile, count, unit, stride});
  const size_t column = block % moe.experts.in_blocks / unit * kBlockN;
  const size_t live = std::min(kBlockN, moe.experts.down.k - column);
  const float* bias = moe.experts.in_bias ? moe.experts.in_bias + block * kBlockN : nullptr;
  // A factor of an input is a factor of its products.
  for (size_t i = 0; spec.weighs_input && i < count; ++i)
    pass.table.scale(tile + i * stride, moe.buffers.weights[moe.work.plan.choice(first + i)],
                     stride);
  if (spec.swiglu_limit > 0) return ClampTile(moe, tile, count, live, bias, first, column);
  pass.table.activate_rows({.activation = pass.spec.activation,
                            .x = tile,
                            .up = pass.spec.gated ? tile + kBlockN : nullptr,
                            .rows = count,
                            .n = live,
                            .stride = stride,
                            .bias = bias,
                            .up_bias = bias && pass.spec.gated ? bias + kBlockN : nullptr,
                            .dst = moe.mlp(first) + column * moe.element(),
                            .dst_type = pass.activation,
                            .dst_stride = moe.experts.down.k_padded()});
}

void RunInItem(const Moe& moe, const ExpertItem& item) {
  const size_t end = moe.work.plan.first(item.expert + 1);
  for (size_t first = moe.work.plan.first(item.expert); first < end; first += kExpertTileRows) {
    const size_t count = std::min(kExpertTileRows, end - first);
    const std::byte* x = GatherRows(moe, first, count);
    for (size_t unit = item.unit; unit < item.unit + item.units; ++unit)
      RunUnit(moe, item.expert * moe.experts.in_blocks + moe.experts.unit * unit, x, first, count);
  }
}

void RunDownItem(const Moe& moe, const ExpertItem& item) {
  const ForwardPass& pass = moe.pass;
  const PackedMatrix& down = moe.experts.down;
  const size_t first = moe.work.plan.first(item.expert), count = moe.work.plan.tokens(item.expert);
  // Prepacked blocks are adjacent: one call for all. Others are packed one by one, to save scratch.
  const size_t step = moe.plain ? 1 : item.units;
  const std::byte* x =
      down.prepares() ? moe.buffers.rounded_mlp + first * down.prepared_row_bytes(pass.activation)
                      : moe.mlp(first);
  for (size_t unit = item.unit; unit < item.unit + item.units; unit += step) {
    const size_t block = item.expert * moe.experts.down_blocks + unit;
    MultiplyBlocks(pass, down,
                   {x, Blocks(moe, down, PackExpertDown, block, step),
                    moe.out(first) + unit * kBlockN, count, step, pass.w.hidden_stride});
  }
}

template <typename Run>
void TakeItems(const char* name, const Moe& moe, const std::vector<ExpertItem>& items,
               const std::atomic<size_t>& count, const Run& run) {
  const TraceSpan span(name);
  moe.pass.worker.ShareOneByOne(count.load(std::memory_order_relaxed),
                                [&](size_t i) { run(moe, items[i]); });
}

// The weight of the shared MLP for one row: the logit behind the experts'.
float SharedWeight(const Moe& moe, size_t row) {
  return 1 / (1 + std::exp(-moe.buffers.logits[row * moe.buffers.logits_stride + moe.count]));
}

// Adds the experts' terms to the shared MLP's, which mlp_partial already holds, or puts them apart.
// Each token's terms are added in the order of its choices, never in the order of computation: the
// sum must not depend on the rest of the batch.
void Combine(const Moe& moe, size_t begin, size_t end) {
  const TraceSpan span("combine");
  const ForwardPass& pass = moe.pass;
  for (size_t row = begin; row < end; ++row) {
    const bool apart = moe.buffers.partial != nullptr;
    float* sum = (apart ? moe.buffers.partial : pass.w.mlp_partial) + row * pass.w.hidden_stride;
    if (apart || moe.layer.down.outputs == 0)
      std::fill_n(sum, pass.hidden, 0.0f);
    else if (pass.spec.moe.shared_router)
      pass.table.scale(sum, SharedWeight(moe, row), pass.hidden);
    if (moe.experts.down.k == 0) continue;
    for (size_t i = 0; i < moe.top_k; ++i) {
      const float weight =
          pass.spec.moe.weighs_input ? 1 : moe.buffers.weights[row * moe.top_k + i];
      pass.table.add_scaled(sum, moe.out(moe.work.plan.place(row, i)), weight, pass.hidden);
      if (!moe.experts.down_bias) continue;
      const auto expert = static_cast<size_t>(moe.buffers.chosen[row * moe.top_k + i]);
      pass.table.add_scaled(sum, moe.experts.down_bias + expert * pass.hidden, weight, pass.hidden);
    }
  }
}

}  // namespace

void NormForRouter(const ForwardPass& pass, const LayerWeights& layer, size_t begin, size_t end) {
  const ExpertBuffers& buffers = pass.w.experts;
  if (!buffers.router_in) return;
  const ExpertWeights& experts = layer.experts;
  const size_t stride = pass.w.normed_stride, element = kernels::SizeOf(pass.activation);
  const NormWeights of_router{experts.router_norm, nullptr};
  for (size_t row = begin; row < end; ++row) {
    NormRow(pass, experts.router_norm ? of_router : layer.mlp_norm,
            buffers.router_in + row * stride, Dtype::kF32, pass.residual(row));
    if (buffers.normed)
      NormRow(pass, experts.norm, buffers.normed + row * stride * element, pass.activation,
              pass.residual(row));
  }
}

void RunExperts(const ForwardPass& pass, size_t layer) {
  const Moe moe(pass, layer);
  RunRouter(moe);
  pass.worker.Share(pass.rows, [&](size_t begin, size_t end) {
    Choose(moe, begin, end);
    RoundTokens(moe, begin, end);
  });
  pass.worker.Once([&] { PlanWork(moe); });
  Observe(pass, moe.experts.in, moe.normed(), pass.rows, &moe.work.plan);
  RunMlpIn(pass, moe.layer, moe.buffers.shared);
  TakeItems("experts_in", moe, moe.work.in_items, moe.work.in_count, RunInItem);
  Observe(pass, moe.experts.down, moe.buffers.mlp, pass.rows * moe.top_k, &moe.work.plan);
  RoundAssignments(moe);
  Project(pass, "shared_down", moe.layer.down, moe.buffers.shared, pass.w.mlp_partial,
          pass.w.hidden_stride);
  TakeItems("experts_down", moe, moe.work.down_items, moe.work.down_count, RunDownItem);
  const auto combine = [&](size_t begin, size_t end) { Combine(moe, begin, end); };
  pass.worker.Share(pass.rows, combine, PhaseScope::kRanks);
}

}  // namespace pinion
