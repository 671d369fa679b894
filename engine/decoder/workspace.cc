#include "engine/decoder/workspace.h"

#include <algorithm>
#include <initializer_list>

#include "engine/decoder/attend.h"
#include "engine/decoder/mlp_tile.h"
#include "engine/spec/stage.h"
#include "engine/weights/weight_layout.h"

namespace pinion {
namespace {

using kernels::Dtype;
using kernels::RoundUp;

using Roles = std::initializer_list<MatrixRole>;
constexpr Roles kDenseRoles = {MatrixRole::kQkv,  MatrixRole::kO,    MatrixRole::kMlpIn,
                               MatrixRole::kDown, MatrixRole::kHead, MatrixRole::kQueryUp};

// The largest value of `of` over a rank's matrices that stay in integers.
size_t MostBytes(const DecoderSpec& spec, const Shard& shard, const FormatPlan& formats,
                 const auto& of) {
  size_t most = 0;
  for (const auto& [key, format] : formats.formats()) {
    const auto& [layer, role] = key;
    const Range inputs = InputsOf(spec, shard, layer, role);
    most = std::max<size_t>(most,
                            of(role, MatrixOf(formats.dtype, kernels::kBlockN, inputs, &format)));
  }
  return most;
}

// Bytes of a row of activations as prepared for the matrices with these roles; 0 if they take it as
// is.
size_t PreparedRowBytes(const DecoderSpec& spec, const Shard& shard, const FormatPlan& formats,
                        Roles roles) {
  return MostBytes(spec, shard, formats,
                   [&](MatrixRole role, const PackedMatrix& matrix) -> size_t {
                     const bool wanted = std::find(roles.begin(), roles.end(), role) != roles.end();
                     if (!wanted || !matrix.prepares()) return 0;
                     return matrix.prepared_row_bytes(kernels::ActivationType(formats.dtype));
                   });
}

// Bytes of a block of floats into which integer weights are expanded while they are multiplied.
size_t PanelBytes(const DecoderSpec& spec, const Shard& shard, const FormatPlan& formats) {
  return MostBytes(spec, shard, formats, [&](MatrixRole, const PackedMatrix& matrix) -> size_t {
    if (!matrix.integers || matrix.rounds() || matrix.is_e4m3()) return 0;
    return kernels::PackedBlockBytes(formats.dtype, matrix.packed_columns());
  });
}

bool HasExperts(const DecoderSpec& spec) { return spec.moe.router.experts > 0; }

size_t ExpertTileBytes(const DecoderSpec& spec, const Shard& shard, const FormatPlan& formats) {
  if (!HasExperts(spec)) return 0;
  const auto hidden = static_cast<size_t>(spec.hidden);
  const size_t row =
      RoundUp(hidden, kernels::kPadK) * kernels::SizeOf(kernels::ActivationType(formats.dtype));
  return kExpertTileRows *
         std::max(row, PreparedRowBytes(spec, shard, formats, {MatrixRole::kExpertIn}));
}

void LayOutExperts(const DecoderSpec& spec, const Shard& shard, const FormatPlan& formats,
                   size_t max_rows, const Workspace& w, ExpertBuffers& buffers, const auto& take) {
  const size_t element = kernels::SizeOf(kernels::ActivationType(formats.dtype));
  const auto top_k = static_cast<size_t>(spec.moe.router.top_k);
  const size_t assignments = max_rows * top_k;
  const int routed = spec.moe.router.experts + (spec.moe.shared_router ? 1 : 0);
  buffers.logits_stride = RoundUp(static_cast<size_t>(routed), kernels::kBlockN);
  const bool apart = spec.moe.apart;
  if (apart || element < sizeof(float))
    take(buffers.router_in, max_rows * w.normed_stride * sizeof(float));
  if (apart) {
    take(buffers.normed, max_rows * w.normed_stride * element);
    take(buffers.partial, max_rows * w.hidden_stride * sizeof(float));
  }
  take(buffers.logits, max_rows * buffers.logits_stride * sizeof(float));
  take(buffers.chosen, assignments * sizeof(int32_t));
  take(buffers.weights, assignments * sizeof(float));
  const size_t share = RoundUp(shard.expert_intermediate.size(), kernels::kPadK);
  take(buffers.mlp, assignments * share * element);
  const size_t shared = RoundUp(shard.shared_intermediate.size(), kernels::kPadK);
  take(buffers.shared, max_rows * shared * element);
  take(buffers.rounded, max_rows * PreparedRowBytes(spec, shard, formats, {MatrixRole::kExpertIn}));
  take(buffers.rounded_mlp,
       assignments * PreparedRowBytes(spec, shard, formats, {MatrixRole::kExpertDown}));
  take(buffers.out, assignments * w.hidden_stride * sizeof(float));
}

size_t LatentTileBytes(const DecoderSpec& spec, Dtype dtype) {
  const auto widest = static_cast<size_t>(std::max(spec.latent.nope_dim, spec.latent.kv_rank));
  return kMlpTileRows * RoundUp(widest, kernels::kPadK) *
         kernels::SizeOf(kernels::ActivationType(dtype));
}

void LayOutLatent(const DecoderSpec& spec, size_t heads, size_t element, size_t max_rows,
                  Workspace& w, const auto& take) {
  const LatentSpec& latent = spec.latent;
  const auto size = [](int n) { return static_cast<size_t>(n); };
  const size_t query = size(latent.nope_dim + latent.rope_dim), q_rank = size(latent.q_rank);
  const size_t projected =
      (q_rank > 0 ? q_rank : heads * query) + size(latent.kv_rank + latent.rope_dim);
  w.qkv_stride = std::max(w.qkv_stride, RoundUp(projected, kernels::kBlockN));
  w.attended_stride = heads * size(latent.kv_rank);
  LatentBuffers& buffers = w.latent;
  buffers.queries_stride = q_rank > 0 ? RoundUp(heads * query, kernels::kBlockN) : 0;
  buffers.latent_queries_stride = heads * size(latent.kv_rank + latent.rope_dim);
  take(buffers.compressed, max_rows * RoundUp(q_rank, kernels::kPadK) * element);
  take(buffers.queries, max_rows * buffers.queries_stride * sizeof(float));
  take(buffers.latent_queries, max_rows * buffers.latent_queries_stride * sizeof(float));
  take(buffers.values,
       max_rows * RoundUp(heads * size(latent.value_dim), kernels::kPadK) * element);
}

void LayOutIndex(const DecoderSpec& spec, size_t element, size_t max_rows, IndexBuffers& buffers,
                 const auto& take) {
  const auto heads = static_cast<size_t>(spec.index.heads),
             dim = static_cast<size_t>(spec.index.dim);
  buffers.projected_stride = RoundUp(dim + heads, kernels::kBlockN);
  buffers.queries_stride = RoundUp(heads * dim, kernels::kBlockN);
  buffers.row_bytes = RoundUp(heads * RoundUp(dim, kernels::kPadK) * element, 64);
  take(buffers.projected, max_rows * buffers.projected_stride * sizeof(float));
  take(buffers.queries, max_rows * buffers.queries_stride * sizeof(float));
  take(buffers.rounded, max_rows * buffers.row_bytes);
}

// The row stride, in floats, of products: an odd number of cache lines. Rows a power of two apart
// would map to a few sets of every cache, and the rows of one block would evict each other.
size_t SpreadStride(size_t columns) {
  return RoundUp(columns, kernels::kBlockN) + 64 / sizeof(float);
}

void LayOutStreams(const DecoderSpec& spec, size_t element, size_t max_rows, size_t hidden_stride,
                   StreamBuffers& buffers, const auto& take) {
  const auto size = [](int n) { return static_cast<size_t>(n); };
  const size_t input = size(spec.layer_inputs.size), rank = size(spec.laurel_rank);
  const size_t streams = size(spec.alt_up.streams);
  if (input == 0 && rank == 0 && streams == 0) return;
  buffers.input_width = (EndOfLayers(spec) - FirstLayer(spec)) * input;
  buffers.inputs_stride = SpreadStride(buffers.input_width);
  buffers.gate_stride = SpreadStride(std::max(input, rank));
  buffers.stream_floats = max_rows * hidden_stride;
  take(buffers.inputs, max_rows * buffers.inputs_stride * sizeof(float));
  take(buffers.gate, max_rows * buffers.gate_stride * sizeof(float));
  take(buffers.gated, max_rows * RoundUp(input, kernels::kPadK) * element);
  take(buffers.narrowed, max_rows * RoundUp(rank, kernels::kPadK) * element);
  take(buffers.term, max_rows * hidden_stride * sizeof(float));
  take(buffers.streams, streams * buffers.stream_floats * sizeof(float));
}

// Of any layer: elements of a rank's queries, and of all that it projects to.
struct WidestHeads {
  WidestHeads() = default;
  WidestHeads(const DecoderSpec& spec, const Shard& shard) {
    for (size_t layer = 0; layer < spec.layer_specs.size(); ++layer) {
      const HeadShare& share = shard.Heads(layer);
      const auto head_dim = static_cast<size_t>(LayerHeads(spec, layer).head_dim);
      const size_t own = share.q_heads.size() * head_dim;
      q = std::max(q, own);
      projected = std::max(
          projected, (spec.attention_gate ? 2 * own : own) + 2 * share.kv_heads.size() * head_dim);
    }
  }
  size_t q = 0, projected = 0;
};

// Columns of a rank's widest dense MLP, of any layer or of those that keep their largest gates
// alone.
size_t WidestShare(const DecoderSpec& spec, const Shard& shard, bool cut) {
  size_t widest = 0;
  for (size_t layer = 0; layer < spec.layer_specs.size(); ++layer)
    if (const LayerSpec& kinds = spec.layer_specs[layer];
        kinds.mlp == MlpKind::kDense && (!cut || kinds.gate_cut))
      widest = std::max(widest, shard.Intermediate(layer).size());
  return widest;
}

// Sets the strides and hands out the buffers of `base` (null: only counts); returns the bytes used.
size_t LayOut(const DecoderSpec& spec, const Shard& shard, const FormatPlan& formats,
              size_t max_rows, std::byte* base, Workspace& w) {
  const auto hidden = static_cast<size_t>(spec.hidden);
  const size_t element = kernels::SizeOf(kernels::ActivationType(formats.dtype));
  const size_t q_heads = shard.q_heads.size();
  const bool latent = spec.latent.kv_rank > 0;  // then LayOutLatent has the attention's own columns
  const WidestHeads heads = latent ? WidestHeads() : WidestHeads(spec, shard);
  w.hidden_stride = HiddenStride(spec);
  const DeltaColumns delta(spec.delta, shard.delta_heads.size());
  const size_t channels = shard.conv_channels.size();
  const MambaColumns mamba(spec.mamba, shard);
  const size_t recurred = RoundUp(std::max({delta.values(), channels, mamba.b}), kernels::kPadK);
  w.qkv_stride = SpreadStride(std::max({heads.projected, delta.width, 3 * channels, mamba.count}));
  w.normed_stride = RoundUp(hidden, kernels::kPadK);
  w.attended_stride = RoundUp(heads.q, kernels::kPadK);
  const size_t mlp_columns = RoundUp(WidestShare(spec, shard, false), kernels::kPadK);
  const size_t cut = RoundUp(WidestShare(spec, shard, true), kernels::kBlockN);
  w.gates_stride = cut > 0 ? SpreadStride(2 * cut) : 0;
  size_t used = 0;
  const auto take = [&](auto*& pointer, size_t bytes) {
    const size_t at = RoundUp(used, 64);
    used = at + bytes;
    if (base) pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(base + at);
  };
  if (latent) LayOutLatent(spec, q_heads, element, max_rows, w, take);
  if (spec.index.heads > 0 && q_heads > 0) LayOutIndex(spec, element, max_rows, w.index, take);
  take(w.residual, max_rows * hidden * sizeof(float));
  take(w.normed, max_rows * w.normed_stride * element);
  take(w.qkv, max_rows * w.qkv_stride * sizeof(float));
  take(w.attended, max_rows * w.attended_stride * element);
  take(w.recurred, max_rows * recurred * element);
  const auto bottleneck = [](int rank) {
    return RoundUp(static_cast<size_t>(rank), kernels::kPadK);
  };
  take(w.z_bottleneck, max_rows * bottleneck(spec.delta.z_rank) * element);
  take(w.a_bottleneck, max_rows * bottleneck(spec.delta.a_rank) * element);
  take(w.state_scores, max_rows * mamba.groups * kernels::kStateChunk * sizeof(float));
  take(w.attention_partial, max_rows * w.hidden_stride * sizeof(float));
  const bool beside = std::any_of(
      spec.layer_specs.begin(), spec.layer_specs.end(),
      [](const LayerSpec& layer) { return layer.mixer == MixerKind::kAttentionAndMamba; });
  take(w.mamba_partial, beside ? max_rows * w.hidden_stride * sizeof(float) : 0);
  take(w.mlp, max_rows * mlp_columns * element);
  take(w.mlp_partial, max_rows * w.hidden_stride * sizeof(float));
  if (cut > 0) take(w.gates, max_rows * w.gates_stride * sizeof(float));
  LayOutStreams(spec, element, max_rows, w.hidden_stride, w.streams, take);
  if (formats.dtype == Dtype::kBf16)
    w.spread_columns =
        std::min(std::max({w.normed_stride, w.attended_stride, recurred, mlp_columns}),
                 kernels::kSpreadColumns);
  const size_t spread = w.spread_columns > 0 ? w.spread_columns + kernels::kSpreadGap : 0;
  take(w.prepared,
       max_rows * std::max(PreparedRowBytes(spec, shard, formats, kDenseRoles), spread * element));
  w.angles.resize(spec.ropes.size());
  for (size_t i = 0; i < spec.ropes.size(); ++i) {
    const size_t half = static_cast<size_t>(spec.ropes[i].dim) / 2;
    take(w.angles[i].cosine, max_rows * half * sizeof(float));
    take(w.angles[i].sine, max_rows * half * sizeof(float));
  }
  if (HasExperts(spec)) LayOutExperts(spec, shard, formats, max_rows, w, w.experts, take);
  take(w.row_sums, max_rows * RowSums(spec).stride * sizeof(float));
  return used;
}

// A thread's rows of residual streams, of a router's input and output, and of layers' inputs, each
// on a cache line of its own.
struct StreamRows {
  explicit StreamRows(const DecoderSpec& spec) {
    const auto line = [](int64_t floats) {
      return RoundUp(static_cast<size_t>(floats), 64 / sizeof(float));
    };
    const int64_t streams = spec.alt_up.streams, hidden = spec.hidden;
    router = line(streams * hidden);
    input =
        router +
        (streams > 0 ? RoundUp(static_cast<size_t>(hidden), kernels::kPadK) + kernels::kBlockN : 0);
    count = input + line(int64_t{spec.layers} * spec.layer_inputs.size);
  }
  size_t router = 0, input = 0, count = 0;
};

Result<ThreadScratch> MakeScratch(const DecoderSpec& spec, const Shard& shard,
                                  const FormatPlan& formats, const MemoryPolicy& memory) {
  ThreadScratch scratch;
  const size_t delta = DeltaScratchFloats(spec.delta);
  const size_t state_chunk = StateScratchFloats(spec.mamba);
  const size_t part = PartFloats(WidestCachedShape(spec));
  const auto hidden_row = static_cast<size_t>(std::max(spec.hidden, WidestHead(spec)));
  const size_t products = static_cast<size_t>(spec.index.heads) * kernels::kBlockN;
  const size_t apart_row = spec.moe.apart ? static_cast<size_t>(spec.hidden) : 0;
  const StreamRows streams(spec);
  const size_t floats = RoundUp(streams.count + kMlpTileFloats + delta + state_chunk + part +
                                    products + hidden_row + apart_row,
                                64 / sizeof(float));
  PINION_ASSIGN(
      scratch.storage,
      Pages::Allocate(floats * sizeof(float) + LatentTileBytes(spec, formats.dtype) +
                          ExpertTileBytes(spec, shard, formats) + PanelBytes(spec, shard, formats),
                      memory));
  scratch.stream_rows = scratch.storage.as<float>();
  scratch.router_row = scratch.stream_rows + streams.router;
  scratch.input_row = scratch.stream_rows + streams.input;
  scratch.mlp_tile = scratch.stream_rows + streams.count;
  scratch.delta = scratch.mlp_tile + kMlpTileFloats;
  scratch.state_chunk = scratch.delta + delta;
  scratch.part = scratch.state_chunk + state_chunk;
  scratch.hidden_row = scratch.part + part + products;
  scratch.apart_row = scratch.hidden_row + hidden_row;
  // In front of it, where it is aligned: PartFloats is a multiple of a cache line.
  scratch.index_products = scratch.part + part;
  scratch.latent_tile = scratch.storage.data() + floats * sizeof(float);
  scratch.expert_tile = scratch.latent_tile + LatentTileBytes(spec, formats.dtype);
  scratch.panel = scratch.expert_tile + ExpertTileBytes(spec, shard, formats);
  if (!HasExperts(spec)) return scratch;
  scratch.router.emplace(spec.moe.router);
  return scratch;
}

}  // namespace

Result<Workspace> Workspace::Allocate(const DecoderSpec& spec, const Shard& shard,
                                      const FormatPlan& formats, size_t max_rows, size_t threads,
                                      const MemoryPolicy& memory) {
  Workspace workspace;
  PINION_ASSIGN(workspace.storage, Pages::Allocate(Bytes(spec, shard, formats, max_rows), memory));
  LayOut(spec, shard, formats, max_rows, workspace.storage.data(), workspace);
  if (HasExperts(spec)) workspace.experts.work = std::make_unique<ExpertWork>();
  for (size_t i = 0; i < threads; ++i) {
    PINION_ASSIGN(ThreadScratch scratch, MakeScratch(spec, shard, formats, memory));
    workspace.threads.push_back(std::move(scratch));
  }
  return workspace;
}

RowSums::RowSums(const DecoderSpec& spec) {
  if (spec.qk_norm == QkNorm::kWhole)
    stride = static_cast<size_t>(spec.heads) + static_cast<size_t>(spec.kv_heads);
  mamba = stride;
  if (spec.mamba.norm_runs > 0) stride += static_cast<size_t>(spec.mamba.heads);
  gates = stride;
  size_t widest = 0;
  for (size_t layer = 0; layer < spec.layer_specs.size(); ++layer)
    if (spec.layer_specs[layer].gate_cut) widest = std::max(widest, MlpWidth(spec, layer));
  stride += 2 * ((widest + kernels::kBlockN - 1) / kernels::kBlockN);
}

size_t HiddenStride(const DecoderSpec& spec) {
  return SpreadStride(static_cast<size_t>(spec.hidden));
}

uint64_t Workspace::Bytes(const DecoderSpec& spec, const Shard& shard, const FormatPlan& formats,
                          size_t max_rows) {
  Workspace counted;
  return LayOut(spec, shard, formats, max_rows, nullptr, counted);
}

}  // namespace pinion
