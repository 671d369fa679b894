#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/base/result.h"
#include "engine/host/memory.h"
#include "engine/model/attention_plan.h"
#include "engine/model/shard.h"
#include "engine/model/spec.h"
#include "kernels/kernels.h"

namespace pinion {

// Scratch of one thread; its pages are touched by that thread first.
struct ThreadScratch {
  Pages storage;
  float* mlp_tile = nullptr;    // [kMlpTileRows][128]: a gate and an up block
  float* part = nullptr;        // one attention item: [PartFloats]
  float* hidden_row = nullptr;  // [max(hidden, head_dim)]
  std::vector<std::byte> row;   // one embedding row, where it is made up
};
inline constexpr size_t kMlpTileRows =
    256;  // 256 x 128 floats = 128 KiB: stays in L2 with a W panel

// cos and sin of one rope's angles, [rows][dim / 2] each.
struct AngleTable {
  float *cosine = nullptr, *sine = nullptr;
  std::pair<float*, float*> row(size_t index, size_t half) const {
    return {cosine + index * half, sine + index * half};
  }
};

// Buffers of one rank for one step; rows are the step's tokens. Padding columns are zero and stay
// so.
struct Workspace {
  Pages storage;
  float* residual = nullptr;      // [rows][hidden]
  std::byte* normed = nullptr;    // [rows][hidden padded], activation type
  float* qkv = nullptr;           // [rows][qkv_stride]
  std::byte* attended = nullptr;  // [rows][q padded], activation type
  float* attention_partial =
      nullptr;                     // [rows][hidden_stride]: this rank's term of the o projection
  std::byte* mlp = nullptr;        // [rows][intermediate padded], activation type
  float* mlp_partial = nullptr;    // [rows][hidden_stride]: this rank's term of down
  std::byte* rounded = nullptr;    // [rows] in the layout of the matrix that multiplies them next
  std::vector<AngleTable> angles;  // one a rope
  // [rows][heads + kv_heads] of the whole model, on rank 0 alone: sums of squares of each query and
  // key head, where they are normalised over the whole projection
  float* head_squares = nullptr;
  size_t qkv_stride = 0, hidden_stride = 0, normed_stride = 0, attended_stride = 0, mlp_stride = 0;

  AttentionPlans plans;
  std::vector<float> parts;  // partial results of cut contexts, PartFloats each
  std::unique_ptr<std::atomic<uint32_t>[]> next_item;  // one counter a layer
  std::vector<ThreadScratch> threads;

  static Result<Workspace> Allocate(const DecoderSpec& spec, const Shard& shard,
                                    kernels::Dtype dtype, size_t max_rows, size_t threads);
  static uint64_t Bytes(const DecoderSpec& spec, const Shard& shard, kernels::Dtype dtype,
                        size_t max_rows);
};

}  // namespace pinion
