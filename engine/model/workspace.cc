#include "engine/model/workspace.h"

#include <algorithm>

#include "engine/model/attend.h"

namespace pinion {
namespace {

using kernels::RoundUp;

// What the widest rounded row takes: its groups may be as small as they get.
size_t RoundedRowBytes(const DecoderSpec& spec, const Shard& shard) {
  if (spec.formats.empty()) return 0;
  const size_t q = shard.q_heads.size() * static_cast<size_t>(spec.head_dim);
  const size_t k = std::max({static_cast<size_t>(spec.hidden), q, shard.intermediate.size()});
  return kernels::IntLayout{8, k, kSmallestIntGroup, 0, true}.row_bytes() + kernels::kBlockN;
}

// Sets the strides and hands out the buffers of `base` (null: only counts); returns the bytes used.
size_t LayOut(const DecoderSpec& spec, const Shard& shard, kernels::Dtype dtype, size_t max_rows,
              std::byte* base, Workspace& w) {
  const auto hidden = static_cast<size_t>(spec.hidden),
             head_dim = static_cast<size_t>(spec.head_dim);
  const size_t element = kernels::SizeOf(kernels::ActivationType(dtype));
  const size_t q = shard.q_heads.size() * head_dim, kv = shard.kv_heads.size() * head_dim;
  w.hidden_stride = RoundUp(hidden, kernels::kBlockN);
  w.qkv_stride = RoundUp(q + 2 * kv, kernels::kBlockN);
  w.normed_stride = RoundUp(hidden, kernels::kPadK);
  w.attended_stride = RoundUp(q, kernels::kPadK);
  w.mlp_stride = RoundUp(shard.intermediate.size(), kernels::kPadK);
  size_t used = 0;
  const auto take = [&](auto*& pointer, size_t bytes) {
    const size_t at = RoundUp(used, 64);
    used = at + bytes;
    if (base) pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(base + at);
  };
  take(w.residual, max_rows * hidden * sizeof(float));
  take(w.normed, max_rows * w.normed_stride * element);
  take(w.qkv, max_rows * w.qkv_stride * sizeof(float));
  take(w.attended, max_rows * w.attended_stride * element);
  take(w.attention_partial, max_rows * w.hidden_stride * sizeof(float));
  take(w.mlp, max_rows * w.mlp_stride * element);
  take(w.mlp_partial, max_rows * w.hidden_stride * sizeof(float));
  take(w.rounded, max_rows * RoundedRowBytes(spec, shard));
  w.angles.resize(spec.ropes.size());
  for (size_t i = 0; i < spec.ropes.size(); ++i) {
    const size_t half = static_cast<size_t>(spec.ropes[i].dim) / 2;
    take(w.angles[i].cosine, max_rows * half * sizeof(float));
    take(w.angles[i].sine, max_rows * half * sizeof(float));
  }
  if (spec.qk_norm == QkNorm::kWhole)
    take(w.head_squares,
         max_rows * static_cast<size_t>(spec.heads + spec.kv_heads) * sizeof(float));
  return used;
}

Result<ThreadScratch> MakeScratch(const DecoderSpec& spec) {
  ThreadScratch scratch;
  const size_t tile = kMlpTileRows * 2 * kernels::kBlockN;
  const size_t part = PartFloats(CachedShape(spec));
  const auto hidden_row = static_cast<size_t>(std::max(spec.hidden, spec.head_dim));
  PINION_ASSIGN(scratch.storage, Pages::Allocate((tile + part + hidden_row) * sizeof(float)));
  scratch.mlp_tile = scratch.storage.as<float>();
  scratch.part = scratch.mlp_tile + tile;
  scratch.hidden_row = scratch.part + part;
  return scratch;
}

}  // namespace

Result<Workspace> Workspace::Allocate(const DecoderSpec& spec, const Shard& shard,
                                      kernels::Dtype dtype, size_t max_rows, size_t threads) {
  Workspace workspace;
  PINION_ASSIGN(workspace.storage, Pages::Allocate(Bytes(spec, shard, dtype, max_rows)));
  LayOut(spec, shard, dtype, max_rows, workspace.storage.data(), workspace);
  const auto layers = static_cast<size_t>(spec.layers);
  workspace.next_item = std::make_unique<std::atomic<uint32_t>[]>(layers);
  for (size_t i = 0; i < threads; ++i) {
    PINION_ASSIGN(ThreadScratch scratch, MakeScratch(spec));
    workspace.threads.push_back(std::move(scratch));
  }
  return workspace;
}

uint64_t Workspace::Bytes(const DecoderSpec& spec, const Shard& shard, kernels::Dtype dtype,
                          size_t max_rows) {
  Workspace counted;
  return LayOut(spec, shard, dtype, max_rows, nullptr, counted);
}

}  // namespace pinion
