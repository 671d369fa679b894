#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/base/result.h"
#include "engine/checkpoint/tensors.h"
#include "engine/host/memory.h"
#include "engine/host/team.h"
#include "engine/spec/spec.h"
#include "engine/weights/format_plan.h"
#include "engine/weights/shard.h"
#include "engine/weights/shared_weights.h"
#include "kernels/e4m3.h"
#include "kernels/integer.h"
#include "kernels/kernels.h"

namespace pinion {

// A weight matrix in the kernels' packed layout; the memory belongs to RankWeights.
struct PackedMatrix {
  std::byte* data = nullptr;
  kernels::Dtype dtype = kernels::Dtype::kF32;
  size_t outputs = 0, k = 0;  // before padding
  int layer = -1;             // -1: outside the layers; its inputs are not observed
  MatrixRole role = MatrixRole::kHead;
  // If it stays in integers: their layout, how they are multiplied, and the order of the packed
  // columns if that is not the share's own.
  std::optional<kernels::IntLayout> integers;
  IntegerProduct product = IntegerProduct::kInt8;
  kernels::Rounding rounding;
  std::optional<kernels::E4m3Rounding> e4m3_rounding;  // stays empty for integers
  std::shared_ptr<const ColumnOrder> order;

  // Whether activations are rounded to int8 before they are multiplied; whether they must be
  // prepared in any way (rounded, also to e4m3, or reordered).
  bool rounds() const { return integers && product == IntegerProduct::kInt8; }
  bool is_e4m3() const { return integers && product == IntegerProduct::kE4m3; }
  bool prepares() const { return rounds() || e4m3_rounding || order; }
  // Bytes from row to row of the prepared activations.
  size_t prepared_row_bytes(kernels::Dtype activation) const {
    if (rounds()) return integers->row_bytes();
    return packed_columns() * kernels::SizeOf(activation);
  }
  // Of a block, padding included.
  size_t packed_columns() const { return integers ? integers->k_padded() : k_padded(); }
  size_t blocks() const { return (outputs + kernels::kBlockN - 1) / kernels::kBlockN; }
  size_t k_padded() const { return kernels::RoundUp(k, kernels::kPadK); }
  size_t block_bytes() const {
    return integers ? integers->block_bytes() : kernels::PackedBlockBytes(dtype, k);
  }
  size_t size_bytes() const { return blocks() * block_bytes(); }
  const std::byte* block(size_t index) const { return data + index * block_bytes(); }
};

// A norm over the residual stream, both float32 [hidden]; null if the model has none.
struct NormWeights {
  float *weight = nullptr, *bias = nullptr;
};

// Latent attention's matrices beside qkv and o. Here qkv projects to queries (this rank's heads, or
// the compressed queries of all heads), then to the latent and the rotary key; q_norm and k_norm
// are the norms of the compressed queries and of the latent; o takes value_dim of each head.
struct LatentWeights {
  PackedMatrix q_up;  // [q heads * (nope_dim + rope_dim)][q_rank]; empty if q_rank is 0
  // One matrix per head, of key_blocks and value_blocks blocks: from a query's part without
  // rotation to the latent space, [kv_rank][nope_dim]; from a weighted sum of latents to values,
  // [value_dim][kv_rank].
  PackedMatrix key_up, value_up;
  size_t key_blocks = 0, value_blocks = 0;
  std::optional<kernels::E4m3Rounding> rounding;  // of latents, before they are cached
};

// The indexer of latent attention, whole on every rank that has heads. Without one everything is
// empty.
struct IndexWeights {
  PackedMatrix q;  // [heads * dim][q_rank]
  PackedMatrix k;  // [dim + heads][hidden]: the key, then the heads' weights
  float *k_norm = nullptr, *k_norm_bias = nullptr;  // [dim]
};

// The weights of Gated DeltaNet beside qkv and o, of this rank's heads. Here qkv projects to the
// columns that DeltaColumns names; o takes the value heads. Without DeltaNet everything is null.
struct DeltaWeights {
  float* conv = nullptr;     // [conv_width][channels of q, k, v]
  float* log_a = nullptr;    // [value heads]
  float* dt_bias = nullptr;  // as many as DeltaColumns has of a
  float* norm = nullptr;     // [value_dim]
  // From the bottlenecks, if there are any: to z, [value heads * value_dim][z_rank], and to a,
  // [columns of a][a_rank].
  PackedMatrix z_up, a_up;
};

// The weights of a gated short convolution beside qkv and o, of this rank's channels. Here qkv
// projects to B, C and x of them, one after the other; o takes the channels.
struct ShortConvWeights {
  float* taps = nullptr;  // [width][channels]
};

// The weights of Mamba-2, of this rank's heads and their groups. `in` projects to the columns that
// MambaColumns names; `out` takes the heads. Without Mamba-2 everything is empty.
struct MambaWeights {
  PackedMatrix in, out;
  float* conv = nullptr;       // [conv_width][channels], times the parts' multipliers
  float* conv_bias = nullptr;  // [channels]
  float* log_a = nullptr;      // [heads], as the next two
  float* skip = nullptr;       // D
  float* dt_bias = nullptr;
  float* norm = nullptr;  // [heads * head_dim]
};

// Columns of a Mamba-2 projection of so many heads and groups, in this order: x of the heads, B and
// C of the groups, which the convolution takes; then z of the heads, dt.
struct MambaColumns {
  MambaColumns(const MambaSpec& mamba, size_t heads, size_t groups);
  MambaColumns(const MambaSpec& mamba, const Shard& shard)
      : MambaColumns(mamba, shard.mamba_heads.size(), shard.mamba_groups.size()) {}

  size_t heads, groups;
  size_t b, c, z, dt;  // where each of them begins; x begins at 0
  size_t count;

  size_t channels() const { return z; }
};

// Columns of a row of a Gated DeltaNet projection of so many key heads: queries, keys and values of
// its heads, which the convolution takes; z of each value head, b and a, in this order. If z and a
// come through bottlenecks, they are written by products of their own: the first product gives b,
// z's and a's bottleneck after the channels, and both follow in whole blocks.
struct DeltaColumns {
  DeltaColumns(const DeltaSpec& delta, size_t key_heads);

  size_t key_heads, value_heads, value_dim;
  size_t k, v;                    // where keys and values begin; queries begin at 0
  size_t a_count;                 // how many a there are
  size_t z = 0, b = 0, a = 0;     // where each of them begins
  size_t z_down = 0, a_down = 0;  // where the bottlenecks begin, if there are any
  size_t count = 0, width = 0;    // of the first product; of all of a row

  size_t values() const { return value_heads * value_dim; }
  size_t channels() const { return v + values(); }
};

// The experts of one layer: this rank's columns of each. Without experts everything is empty.
struct ExpertWeights {
  // [experts][hidden], float32; then a row for the shared MLP, if it has a router too
  PackedMatrix router;
  float* router_bias = nullptr;  // [experts]
  float* correction = nullptr;   // [experts]
  // If they stand apart from the shared MLP (MoeSpec::apart): times the router's normed input, with
  // the model's constant, [hidden]; times the chosen weights, [experts]; norms.
  float *router_norm = nullptr, *weight_scale = nullptr;
  NormWeights norm, post_norm, shared_post_norm;
  // All experts' matrices one after the other, `in_blocks` and `down_blocks` each. Unless they are
  // prepacked there is no memory behind them; PlainExperts gives their blocks.
  PackedMatrix in;    // gate and up alternate as in mlp_in, [in_blocks * 64][hidden]
  PackedMatrix down;  // [down_blocks * 64][share]
  size_t in_blocks = 0, down_blocks = 0;
  size_t unit = 2;  // blocks of `in` that one thread activates together: without gates only one
  float* in_bias = nullptr;    // [experts][in_blocks * 64], in the matrix's order
  float* down_bias = nullptr;  // [experts][hidden], on one rank alone: part of its term

  bool prepacked() const { return in.data != nullptr; }
  uint64_t bytes_per_expert() const {
    return in_blocks * in.block_bytes() + down_blocks * down.block_bytes();
  }
};

// The weights of a layer's input (LayerInputSpec), whole on every rank. Empty without one.
struct LayerInputWeights {
  PackedMatrix gate, out;  // [size][hidden], [hidden][size]
  NormWeights post_norm;
};

// How a layer predicts and corrects residual streams (AltUpSpec), whole on every rank.
struct AltUpWeights {
  PackedMatrix router;           // [streams][hidden], float32
  float* router_norm = nullptr;  // [hidden], over hidden
  float* predict = nullptr;      // [streams][streams][streams], float32
  float* correct = nullptr;      // [streams][streams], float32
  float* scale = nullptr;        // [hidden]
};

// The low-rank term beside attention (DecoderSpec::laurel_rank), whole on every rank.
struct LaurelWeights {
  PackedMatrix left, right;  // [laurel_rank][hidden], [hidden][laurel_rank]
  NormWeights norm;
};

// One layer of one rank, of which Shard::Heads tells the heads. Vectors are float32; absent norms
// and biases are null. Matrices whose share is empty have no outputs or no inputs.
struct LayerWeights {
  NormWeights attention_norm, attention_post_norm, mlp_norm, mlp_post_norm;
  // [head_dim]; over the whole projection: this rank's share, [heads of the rank * head_dim]
  float *q_norm = nullptr, *k_norm = nullptr;
  float* sinks = nullptr;  // [q heads]
  float* scale = nullptr;  // [1]: the residual stream is times it after the layer
  // [(q heads + 2 kv heads) * head_dim][hidden], of keys alone if they are values too, of queries
  // alone if it sees another layer's; then a gate for each query head, if they have one
  PackedMatrix qkv;
  PackedMatrix o;  // [hidden][q heads * head_dim]
  // Gated MLP: blocks of 64 gate outputs and 64 up outputs alternate, so that the thread that
  // computes both can multiply them at once. Plain MLP: fc1's outputs.
  PackedMatrix mlp_in;           // [blocks * 64][hidden]
  PackedMatrix down;             // [hidden][intermediate share]
  float* qkv_bias = nullptr;     // [qkv.outputs]
  float* o_bias = nullptr;       // [hidden], whole on every rank: added after the reduction
  float* mlp_in_bias = nullptr;  // [mlp_in.outputs], in the matrix's order
  float* down_bias = nullptr;    // [hidden], whole on every rank
  // Beside experts, the MLP above is the shared one, if any.
  ExpertWeights experts;
  LatentWeights latent;
  IndexWeights index;
  DeltaWeights delta;
  ShortConvWeights conv;
  MambaWeights mamba;
  LayerInputWeights input;
  AltUpWeights alt_up;
  LaurelWeights laurel;

  bool has_experts() const { return experts.router.outputs > 0; }
};

// All packed weights of one rank, in one mapping whose pages the rank's threads touch first, or
// those of a process that shares them. Not written after loading.
struct RankWeights {
  Shard shard;
  Pages storage;
  std::vector<LayerWeights> layers;
  NormWeights embedding_norm, final_norm;
  // [layers of the stage * size][hidden]: to what their inputs have of the embedding
  PackedMatrix layer_inputs;
  float* layer_input_norm = nullptr;                  // [size]
  std::vector<PackedMatrix> streams_in, streams_out;  // of streams but the first, [hidden][hidden]
  PackedMatrix head;  // [vocabulary share][hidden]; nothing without a head
};

// Bytes that RankWeights::storage of one rank will take; experts that are not prepacked take none.
uint64_t ShardWeightBytes(const DecoderSpec& spec, const FormatPlan& formats, bool moe_prepack,
                          const RankShares& shares, int rank);

// Packs the share of each of this process's ranks, all at once: each
// thread packs the blocks that it will compute with, so its memory is local. Every tensor that the
// spec names must exist in `source` (OpenWeights has checked it). memory: by rank; none: local.
// shared: where they come to lie, or are already, in memory of several processes.
Result<std::vector<RankWeights>> LoadWeights(const DecoderSpec& spec, const FormatPlan& formats,
                                             bool moe_prepack, const TensorSource& source,
                                             Ranks& ranks, const RankSpan& span = {},
                                             const std::vector<MemoryPolicy>& memory = {},
                                             const SharedShards& shared = {});

// Blocks of `matrix` that a thread should take at a time for a product with `rows` rows: long
// enough that handing them out costs nothing (0.1 ms on a core that reads 20 GB/s and does 0.4
// TFLOP/s), and short compared with the time slices of a busy core. A multiple of `unit`.
size_t ChunkBlocks(const PackedMatrix& matrix, size_t rows, size_t unit = 1);

// Blocks of `matrix` that `worker` packs, and computes first at every step (Worker::Share). Gated
// MLP inputs are distributed in pairs (`unit` 2), everything else singly.
inline std::pair<size_t, size_t> BlocksOf(const Worker& worker, const PackedMatrix& matrix,
                                          size_t unit = 1) {
  const auto [begin, end] = worker.Slice(matrix.blocks() / unit);
  return {begin * unit, end * unit};
}

}  // namespace pinion
