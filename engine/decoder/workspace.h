#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "engine/decoder/attention_plan.h"
#include "engine/decoder/expert_plan.h"
#include "engine/decoder/index_buffers.h"
#include "engine/host/memory.h"
#include "engine/spec/routing.h"
#include "engine/spec/spec.h"
#include "engine/weights/format_plan.h"
#include "engine/weights/plain_experts.h"
#include "engine/weights/shard.h"
#include "kernels/kernels.h"

namespace pinion {

// Scratch of one thread; its pages are touched by that thread first.
struct ThreadScratch {
  Pages storage;
  float* stream_rows = nullptr;  // of AltUp, [streams][hidden]
  float* router_row = nullptr;   // its router's input, [hidden padded], and output, [64]
  float* input_row = nullptr;    // inputs of all layers by the table, [layers * size]
  float* mlp_tile = nullptr;     // [kMlpTileFloats] (mlp_tile.h): gate and up blocks
  float* delta = nullptr;        // a head's chunk of the delta rule: [DeltaScratchFloats]
  float* state_chunk = nullptr;  // that of Mamba-2: [StateScratchFloats]
  float* part = nullptr;         // one attention item: [PartFloats]
  float* hidden_row = nullptr;   // [max(hidden, widest head)]
  float* apart_row = nullptr;    // [hidden], if experts stand apart
  std::vector<std::byte> row;    // one embedding row, if it is made up
  // Experts: a tile's tokens, [kExpertTileRows][hidden padded], activation type.
  std::byte* expert_tile = nullptr;
  // A block of integer weights expanded to floats while it is multiplied.
  std::byte* panel = nullptr;
  // Latent attention: one head's rows, [kMlpTileRows][nope_dim or kv_rank padded], activation type.
  std::byte* latent_tile = nullptr;
  float* index_products = nullptr;  // an indexer's heads with a block of keys, [heads][64]
  std::vector<std::byte> index_keys, gathered;  // keys to multiply with; the chosen latents
  std::vector<float> index_scores;
  std::optional<TokenRouter> router;
  ExpertScratch plain_experts;            // without prepacking: the buffers to pack from,
  std::vector<std::byte> packed_experts;  // and one or two blocks
};
inline constexpr size_t kMlpTileRows =
    256;  // 256 x 128 floats = 128 KiB: stays in L2 with a W panel
// 128 x 2048 bf16 = 512 KiB: half an L2, since every block of an expert reads the tile again.
inline constexpr size_t kExpertTileRows = 128;

// Of a chunk of one head: queries, keys, outputs and decays of channels, [kDeltaChunk] rows each,
// and the kernel's own.
constexpr size_t DeltaScratchFloats(const DeltaSpec& delta) {
  if (delta.key_heads == 0) return 0;
  const auto key_dim = static_cast<size_t>(delta.key_dim);
  const size_t row = (delta.decay_per_channel ? 3 : 2) * key_dim;
  return kernels::kDeltaChunk * (row + static_cast<size_t>(delta.value_dim)) +
         kernels::DeltaChunkFloats(key_dim, delta.decay_per_channel);
}

// Of a chunk of one head, or of one group's scores.
constexpr size_t StateScratchFloats(const MambaSpec& mamba) {
  return mamba.heads == 0 ? 0 : kernels::StateChunkFloats(static_cast<size_t>(mamba.state_dim));
}

// The choices of a step's tokens in one layer and the work that follows; written by one thread.
struct ExpertWork {
  ExpertPlan plan;
  std::vector<ExpertItem> in_items, down_items;
  // The numbers of items. Atomic, since a late thread may read them while others plan a later
  // layer.
  std::atomic<size_t> in_count{0}, down_count{0};
  uint64_t weight_bytes_read = 0;  // of experts, over all steps: each once per layer and step
};

// A rank's buffers for latent attention; heads are the rank's. Rows as in Workspace.
struct LatentBuffers {
  std::byte* compressed = nullptr;  // [rows][q_rank padded], activation type
  float* queries = nullptr;         // [rows][queries_stride]: each head's nope and rope part
  float* latent_queries = nullptr;  // [rows][latent_queries_stride]: each head's [kv_rank + rope]
  std::byte* values = nullptr;      // [rows][heads * value_dim padded], activation type
  size_t queries_stride = 0, latent_queries_stride = 0;
};

// A rank's buffers for mixtures of experts. An assignment is one row at one of its experts, in the
// order of ExpertPlan.
struct ExpertBuffers {
  // [rows][hidden padded]; null if activations are float32, and so the router's input already
  float* router_in = nullptr;
  // If experts stand apart: their input, [rows][hidden padded], activation type, and this rank's
  // sum of their outputs, [rows][hidden_stride].
  std::byte* normed = nullptr;
  float* partial = nullptr;
  float* logits = nullptr;      // [rows][logits_stride]
  int32_t* chosen = nullptr;    // [rows][top_k]
  float* weights = nullptr;     // [rows][top_k]
  std::byte* mlp = nullptr;     // [assignments][share padded], activation type
  std::byte* shared = nullptr;  // [rows][shared MLP's share padded], activation type
  // If experts take activations of 8 bits: the step's rows and the assignments' activations in the
  // layouts of the matrices that multiply them.
  std::byte *rounded = nullptr, *rounded_mlp = nullptr;
  float* out = nullptr;  // [assignments][hidden_stride]: this rank's term of each expert
  size_t logits_stride = 0;
  std::unique_ptr<ExpertWork> work;
};

// A rank's buffers for inputs of layers, and for several residual streams; rows as in Workspace.
struct StreamBuffers {
  float* inputs = nullptr;        // [rows][inputs_stride]: of the stage's layers
  float* gate = nullptr;          // [rows][gate_stride]: a product with few outputs
  std::byte* gated = nullptr;     // [rows][size padded], activation type
  std::byte* narrowed = nullptr;  // [rows][laurel_rank padded], activation type
  float* term = nullptr;          // [rows][hidden_stride]: a product with as many as the model
  float* streams = nullptr;       // [streams][rows][hidden_stride]
  size_t input_width = 0, inputs_stride = 0, gate_stride = 0;
  size_t stream_floats = 0;  // from one stream to the next
};

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
  std::byte* attended = nullptr;  // [rows][the layer's o.k_padded()], activation type
  std::byte* recurred =
      nullptr;  // [rows][values or channels of recurrent layers padded], activation type
  // [rows] of the bottlenecks of recurrent layers, each padded, activation type
  std::byte *z_bottleneck = nullptr, *a_bottleneck = nullptr;
  // Of Mamba-2's groups on this rank: [rows][groups][kStateChunk], C with B of the row's chunk.
  float* state_scores = nullptr;
  float* attention_partial =
      nullptr;                     // [rows][hidden_stride]: this rank's term of the o projection
  float* mamba_partial = nullptr;  // the same of Mamba-2 in layers that attend, too
  std::byte* mlp = nullptr;        // [rows][the layer's down.k_padded()], activation type
  float* gates = nullptr;          // [rows][gates_stride], in layers that keep the largest alone
  float* mlp_partial = nullptr;    // [rows][hidden_stride]: this rank's term of down
  std::byte* prepared = nullptr;   // [rows] as Prepare leaves them for a product
  size_t spread_columns = 0;       // of the widest rows that `prepared` has room for with a gap
  std::vector<AngleTable> angles;  // one per rope
  // [rows][RowSums::stride], on a process's first rank only
  float* row_sums = nullptr;
  size_t qkv_stride = 0, hidden_stride = 0, normed_stride = 0, attended_stride = 0,
         gates_stride = 0;

  LatentBuffers latent;   // empty unless attention is latent
  IndexBuffers index;     // empty unless it has an indexer
  StreamBuffers streams;  // empty unless layers have inputs or there are several streams
  ExpertBuffers experts;  // empty if no layer has experts
  AttentionPlans plans;
  std::vector<float> parts;  // partial results of cut contexts, PartFloats each
  std::vector<ThreadScratch> threads;

  static Result<Workspace> Allocate(const DecoderSpec& spec, const Shard& shard,
                                    const FormatPlan& formats, size_t max_rows, size_t threads,
                                    const MemoryPolicy& memory = {});
  static uint64_t Bytes(const DecoderSpec& spec, const Shard& shard, const FormatPlan& formats,
                        size_t max_rows);
};

// The sums in a row of Workspace::row_sums, over values of a token that several ranks hold. First
// the squares of query and key heads, if they are normalised over the whole projection; then those
// of Mamba-2, from `mamba` on; then, from `gates` on, the sum and the sum of squares of each block
// of 64 gates, in layers that keep the largest alone.
struct RowSums {
  explicit RowSums(const DecoderSpec& spec);
  size_t mamba = 0, gates = 0, stride = 0;
};

// Workspace::hidden_stride, the same on every rank.
size_t HiddenStride(const DecoderSpec& spec);

}  // namespace pinion
