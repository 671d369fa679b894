#include "engine/weights/weight_layout.h"

#include "engine/spec/attention_spec.h"
#include "engine/spec/stage.h"

namespace pinion {
namespace {

using kernels::Dtype;

// Hands out 64-byte aligned pieces of one mapping. With a null base it only counts, so that one
// function lays the weights out for both purposes.
class Arena {
 public:
  explicit Arena(std::byte* base) : base_(base) {}
  size_t used() const { return used_; }

  float* Vector(size_t n) { return reinterpret_cast<float*>(Take(n * sizeof(float))); }
  float* VectorIf(bool wanted, size_t n) { return wanted ? Vector(n) : nullptr; }
  PackedMatrix Matrix(PackedMatrix matrix) {
    matrix.data = Take(matrix.size_bytes());
    return matrix;
  }

 private:
  std::byte* Take(size_t bytes) {
    const size_t at = kernels::RoundUp(used_, 64);
    used_ = at + bytes;
    return base_ ? base_ + at : nullptr;
  }
  std::byte* base_;
  size_t used_ = 0;
};

PackedMatrix As(int layer, MatrixRole role, PackedMatrix matrix) {
  matrix.layer = layer;
  matrix.role = role;
  return matrix;
}

// A shard's share of a layer's matrix in the form that the plan gives it.
PackedMatrix ShareOfMatrix(const DecoderSpec& spec, const Shard& shard, const FormatPlan& formats,
                           int layer, MatrixRole role, size_t outputs) {
  return As(layer, role,
            MatrixOf(formats.dtype, outputs, InputsOf(spec, shard, layer, role),
                     formats.Find(layer, role)));
}

// A matrix that is packed in `dtype` whatever the checkpoint's format.
PackedMatrix Plain(Dtype dtype, size_t outputs, size_t k) {
  return MatrixOf(dtype, outputs, {0, k}, nullptr);
}

NormWeights LayOutNorm(const DecoderSpec& spec, const std::string& name, Arena& arena) {
  const auto hidden = static_cast<size_t>(spec.hidden);
  NormWeights norm;
  norm.weight = arena.VectorIf(!name.empty(), hidden);
  norm.bias = arena.VectorIf(!name.empty() && spec.norm_bias, hidden);
  return norm;
}

void LayOutAttention(const DecoderSpec& spec, const Shard& shard, const FormatPlan& formats,
                     int index, Arena& arena, LayerWeights& layer) {
  const auto hidden = static_cast<size_t>(spec.hidden);
  const auto layer_index = static_cast<size_t>(index);
  const HeadShare& heads = shard.Heads(layer_index);
  const auto head_dim = static_cast<size_t>(LayerHeads(spec, layer_index).head_dim);
  const size_t q = heads.q_heads.size() * head_dim, kv = heads.kv_heads.size() * head_dim;
  const LayerSpec& kinds = spec.layer_specs[layer_index];
  const size_t keys = Caches(kinds) ? kv : 0, values = kinds.keys_as_values ? 0 : keys;
  const bool whole = spec.qk_norm == QkNorm::kWhole;
  layer.q_norm = arena.VectorIf(spec.qk_norm != QkNorm::kNone, whole ? q : head_dim);
  layer.k_norm = arena.VectorIf(spec.qk_norm != QkNorm::kNone && keys > 0, whole ? kv : head_dim);
  layer.qkv = arena.Matrix(ShareOfMatrix(spec, shard, formats, index, MatrixRole::kQkv,
                                         (spec.attention_gate ? 2 * q : q) + keys + values));
  layer.o = arena.Matrix(ShareOfMatrix(spec, shard, formats, index, MatrixRole::kO, hidden));
  layer.sinks = arena.VectorIf(!spec.names.sinks.empty() && q > 0, heads.q_heads.size());
  layer.qkv_bias = arena.VectorIf(spec.qkv_bias, layer.qkv.outputs);
  layer.o_bias = arena.VectorIf(spec.o_bias, hidden);
}

void LayOutIndex(const DecoderSpec& spec, Dtype dtype, Arena& arena, IndexWeights& index) {
  const auto heads = static_cast<size_t>(spec.index.heads),
             dim = static_cast<size_t>(spec.index.dim);
  if (heads == 0) return;
  index.q = arena.Matrix(Plain(dtype, heads * dim, static_cast<size_t>(spec.latent.q_rank)));
  index.k = arena.Matrix(Plain(dtype, dim + heads, static_cast<size_t>(spec.hidden)));
  index.k_norm = arena.Vector(dim);
  index.k_norm_bias = arena.Vector(dim);
}

// A rank without heads holds nothing.
void LayOutLatent(const DecoderSpec& spec, const Shard& shard, const FormatPlan& formats, int index,
                  Arena& arena, LayerWeights& layer) {
  const size_t heads = shard.q_heads.size();
  if (heads == 0) return;
  const auto size = [](int n) { return static_cast<size_t>(n); };
  const LatentSpec& spec_latent = spec.latent;
  const size_t rank = size(spec_latent.kv_rank);
  const size_t queries = heads * size(spec_latent.nope_dim + spec_latent.rope_dim);
  const size_t q_rank = size(spec_latent.q_rank), values = size(spec_latent.value_dim);
  const auto blocks = [](size_t n) { return (n + kernels::kBlockN - 1) / kernels::kBlockN; };
  LatentWeights& latent = layer.latent;
  layer.q_norm = arena.VectorIf(q_rank > 0, q_rank);
  layer.k_norm = arena.Vector(rank);
  const size_t projected = (q_rank > 0 ? q_rank : queries) + rank + size(spec_latent.rope_dim);
  layer.qkv = arena.Matrix(ShareOfMatrix(spec, shard, formats, index, MatrixRole::kQkv, projected));
  latent.q_up = arena.Matrix(
      ShareOfMatrix(spec, shard, formats, index, MatrixRole::kQueryUp, q_rank > 0 ? queries : 0));
  if (const auto found = formats.latent_roundings.find(index);
      found != formats.latent_roundings.end())
    latent.rounding = found->second;
  latent.key_blocks = blocks(rank);
  latent.value_blocks = blocks(values);
  latent.key_up = arena.Matrix(Plain(formats.dtype, heads * latent.key_blocks * kernels::kBlockN,
                                     size(spec_latent.nope_dim)));
  latent.value_up =
      arena.Matrix(Plain(formats.dtype, heads * latent.value_blocks * kernels::kBlockN, rank));
  layer.o =
      arena.Matrix(ShareOfMatrix(spec, shard, formats, index, MatrixRole::kO, size(spec.hidden)));
  LayOutIndex(spec, formats.dtype, arena, layer.index);
}

void LayOutDelta(const DecoderSpec& spec, const Shard& shard, Dtype dtype, int index, Arena& arena,
                 LayerWeights& layer) {
  const auto hidden = static_cast<size_t>(spec.hidden);
  const DeltaColumns columns(spec.delta, shard.delta_heads.size());
  layer.qkv = arena.Matrix(As(index, MatrixRole::kQkv, Plain(dtype, columns.count, hidden)));
  layer.o = arena.Matrix(As(index, MatrixRole::kO, Plain(dtype, hidden, columns.values())));
  layer.delta.conv = arena.Vector(static_cast<size_t>(spec.delta.conv_width) * columns.channels());
  layer.delta.log_a = arena.Vector(columns.value_heads);
  layer.delta.dt_bias = arena.Vector(columns.a_count);
  layer.delta.norm = arena.Vector(static_cast<size_t>(spec.delta.value_dim));
  if (spec.delta.z_rank == 0) return;
  layer.delta.z_up =
      arena.Matrix(Plain(dtype, columns.values(), static_cast<size_t>(spec.delta.z_rank)));
  layer.delta.a_up =
      arena.Matrix(Plain(dtype, columns.a_count, static_cast<size_t>(spec.delta.a_rank)));
}

void LayOutConv(const DecoderSpec& spec, const Shard& shard, Dtype dtype, int index, Arena& arena,
                LayerWeights& layer) {
  const auto hidden = static_cast<size_t>(spec.hidden);
  const size_t channels = shard.conv_channels.size();
  layer.qkv = arena.Matrix(As(index, MatrixRole::kQkv, Plain(dtype, 3 * channels, hidden)));
  layer.o = arena.Matrix(As(index, MatrixRole::kO, Plain(dtype, hidden, channels)));
  layer.conv.taps = arena.Vector(static_cast<size_t>(spec.conv.width) * channels);
}

void LayOutMamba(const DecoderSpec& spec, const Shard& shard, Dtype dtype, int index, Arena& arena,
                 MambaWeights& mamba) {
  const auto hidden = static_cast<size_t>(spec.hidden);
  const MambaColumns columns(spec.mamba, shard);
  const size_t inner = columns.b, heads = columns.heads;
  mamba.in = arena.Matrix(As(index, MatrixRole::kQkv, Plain(dtype, columns.count, hidden)));
  mamba.out = arena.Matrix(As(index, MatrixRole::kO, Plain(dtype, hidden, inner)));
  mamba.conv = arena.Vector(static_cast<size_t>(spec.mamba.conv_width) * columns.channels());
  mamba.conv_bias = arena.VectorIf(spec.mamba.conv_bias, columns.channels());
  for (float** vector : {&mamba.log_a, &mamba.skip, &mamba.dt_bias}) *vector = arena.Vector(heads);
  mamba.norm = arena.VectorIf(spec.mamba.norm_runs > 0, inner);
}

void LayOutMixer(const DecoderSpec& spec, const LayerSpec& kinds, const Shard& shard,
                 const FormatPlan& formats, int index, Arena& arena, LayerWeights& layer) {
  if (kinds.mixer == MixerKind::kDeltaNet)
    LayOutDelta(spec, shard, formats.dtype, index, arena, layer);
  else if (kinds.mixer == MixerKind::kShortConv)
    LayOutConv(spec, shard, formats.dtype, index, arena, layer);
  if (HasMamba(kinds.mixer)) LayOutMamba(spec, shard, formats.dtype, index, arena, layer.mamba);
  if (!Attends(kinds.mixer)) return;
  if (spec.latent.kv_rank > 0)
    LayOutLatent(spec, shard, formats, index, arena, layer);
  else
    LayOutAttention(spec, shard, formats, index, arena, layer);
}

// A layer's only MLP, or the one beside its experts.
void LayOutMlp(const DecoderSpec& spec, const Shard& shard, bool bias, const FormatPlan& formats,
               int index, Arena& arena, LayerWeights& layer) {
  const auto hidden = static_cast<size_t>(spec.hidden);
  const size_t middle = InputsOf(spec, shard, index, MatrixRole::kDown).size();
  const size_t outputs = spec.gated ? 2 * kernels::RoundUp(middle, kernels::kBlockN) : middle;
  layer.mlp_in =
      arena.Matrix(ShareOfMatrix(spec, shard, formats, index, MatrixRole::kMlpIn, outputs));
  layer.down = arena.Matrix(ShareOfMatrix(spec, shard, formats, index, MatrixRole::kDown, hidden));
  layer.mlp_in_bias =
      arena.VectorIf(bias, kernels::RoundUp(layer.mlp_in.outputs, kernels::kBlockN));
  layer.down_bias = arena.VectorIf(bias, hidden);
}

ExpertWeights LayOutExperts(const DecoderSpec& spec, const Shard& shard, const FormatPlan& formats,
                            bool prepack, int index, Arena& arena) {
  const RouterSpec& router = spec.moe.router;
  const auto hidden = static_cast<size_t>(spec.hidden);
  const auto experts = static_cast<size_t>(router.experts);
  const Range share = shard.expert_intermediate;
  ExpertWeights weights;
  const size_t routed = experts + (spec.moe.shared_router ? 1 : 0);
  weights.router = arena.Matrix(Plain(Dtype::kF32, routed, hidden));
  weights.router_bias = arena.VectorIf(router.bias, experts);
  weights.correction = arena.VectorIf(router.correction, experts);
  weights.router_norm = arena.VectorIf(spec.moe.apart, hidden);
  weights.weight_scale = arena.VectorIf(spec.moe.apart, experts);
  weights.norm = LayOutNorm(spec, spec.names.expert_norm, arena);
  weights.post_norm = LayOutNorm(spec, spec.names.expert_post_norm, arena);
  weights.shared_post_norm = LayOutNorm(spec, spec.names.shared_post_norm, arena);
  weights.unit = spec.gated ? 2 : 1;
  weights.in_blocks =
      weights.unit * (kernels::RoundUp(share.size(), kernels::kBlockN) / kernels::kBlockN);
  weights.down_blocks = share.size() > 0 ? (hidden + kernels::kBlockN - 1) / kernels::kBlockN : 0;
  const auto stack = [&](size_t blocks, MatrixRole role) {
    const PackedMatrix matrix =
        ShareOfMatrix(spec, shard, formats, index, role, experts * blocks * kernels::kBlockN);
    return prepack ? arena.Matrix(matrix) : matrix;
  };
  weights.in = stack(weights.in_blocks, MatrixRole::kExpertIn);
  weights.down = stack(weights.down_blocks, MatrixRole::kExpertDown);
  weights.in_bias = arena.VectorIf(spec.moe.bias, experts * weights.in_blocks * kernels::kBlockN);
  const bool first = share.begin == 0 && share.size() > 0;
  weights.down_bias = arena.VectorIf(spec.moe.bias && first, experts * hidden);
  return weights;
}

void LayOutStreams(const DecoderSpec& spec, Dtype dtype, Arena& arena, LayerWeights& layer) {
  const auto hidden = static_cast<size_t>(spec.hidden);
  if (const auto size = static_cast<size_t>(spec.layer_inputs.size); size > 0) {
    layer.input.gate = arena.Matrix(Plain(dtype, size, hidden));
    layer.input.out = arena.Matrix(Plain(dtype, hidden, size));
    layer.input.post_norm.weight = arena.Vector(hidden);
  }
  if (const auto rank = static_cast<size_t>(spec.laurel_rank); rank > 0) {
    layer.laurel.left = arena.Matrix(Plain(dtype, rank, hidden));
    layer.laurel.right = arena.Matrix(Plain(dtype, hidden, rank));
    layer.laurel.norm.weight = arena.Vector(hidden);
  }
  if (const auto streams = static_cast<size_t>(spec.alt_up.streams); streams > 0) {
    layer.alt_up.router = arena.Matrix(Plain(Dtype::kF32, streams, hidden));
    layer.alt_up.router_norm = arena.Vector(hidden);
    layer.alt_up.predict = arena.Vector(streams * streams * streams);
    layer.alt_up.correct = arena.Vector(streams * streams);
    layer.alt_up.scale = arena.VectorIf(!spec.names.altup_scale.empty(), hidden);
  }
}

// Outside of the layers.
void LayOutStreams(const DecoderSpec& spec, Dtype dtype, Arena& arena, RankWeights& weights) {
  const auto hidden = static_cast<size_t>(spec.hidden);
  if (const auto size = static_cast<size_t>(spec.layer_inputs.size); size > 0) {
    weights.layer_inputs =
        arena.Matrix(Plain(dtype, (EndOfLayers(spec) - FirstLayer(spec)) * size, hidden));
    weights.layer_input_norm = arena.Vector(size);
  }
  weights.streams_in.clear();
  weights.streams_out.clear();
  for (int stream = 0; stream + 1 < spec.alt_up.streams; ++stream) {
    if (spec.stage.embeds) weights.streams_in.push_back(arena.Matrix(Plain(dtype, hidden, hidden)));
    if (spec.stage.ends) weights.streams_out.push_back(arena.Matrix(Plain(dtype, hidden, hidden)));
  }
}

LayerWeights LayOutLayer(const DecoderSpec& spec, const LayerSpec& kinds, const Shard& shard,
                         const FormatPlan& formats, bool moe_prepack, int index, Arena& arena) {
  LayerWeights layer;
  if (kinds.mixer != MixerKind::kNone) {
    if (kinds.attention_norm)
      layer.attention_norm = LayOutNorm(spec, spec.names.attention_norm, arena);
    LayOutMixer(spec, kinds, shard, formats, index, arena, layer);
    layer.attention_post_norm = LayOutNorm(spec, spec.names.attention_post_norm, arena);
  }
  if (IsInStage(spec, static_cast<size_t>(index))) LayOutStreams(spec, formats.dtype, arena, layer);
  if (kinds.mlp == MlpKind::kNone) return layer;
  layer.mlp_norm = LayOutNorm(spec, spec.names.mlp_norm, arena);
  const bool has_experts = kinds.mlp == MlpKind::kExperts;
  if (has_experts) layer.experts = LayOutExperts(spec, shard, formats, moe_prepack, index, arena);
  LayOutMlp(spec, shard, spec.mlp_bias && !has_experts, formats, index, arena, layer);
  layer.mlp_post_norm = LayOutNorm(spec, spec.names.mlp_post_norm, arena);
  layer.scale = arena.VectorIf(!spec.names.layer_scale.empty(), 1);
  return layer;
}

}  // namespace

DeltaColumns::DeltaColumns(const DeltaSpec& delta, size_t key_heads)
    : key_heads(key_heads),
      value_heads(key_heads == 0 ? 0 : key_heads * static_cast<size_t>(delta.heads_per_key())),
      value_dim(static_cast<size_t>(delta.value_dim)),
      k(key_heads * static_cast<size_t>(delta.key_dim)),
      v(2 * k),
      a_count(delta.decay_per_channel ? k : value_heads) {
  if (delta.z_rank == 0 || key_heads == 0) {
    z = channels();
    b = z + values();
    a = b + value_heads;
    count = width = a + a_count;
    return;
  }
  b = channels();
  z_down = b + value_heads;
  a_down = z_down + static_cast<size_t>(delta.z_rank);
  count = a_down + static_cast<size_t>(delta.a_rank);
  z = kernels::RoundUp(count, kernels::kBlockN);
  a = z + kernels::RoundUp(values(), kernels::kBlockN);
  width = a + kernels::RoundUp(a_count, kernels::kBlockN);
}

MambaColumns::MambaColumns(const MambaSpec& mamba, size_t heads, size_t groups)
    : heads(heads),
      groups(groups),
      b(heads * static_cast<size_t>(mamba.head_dim)),
      c(b + groups * static_cast<size_t>(mamba.state_dim)),
      z(c + (c - b)),
      dt(z + b),
      count(dt + heads) {}

PackedMatrix MatrixOf(Dtype dtype, size_t outputs, Range inputs, const IntegerFormat* format) {
  PackedMatrix matrix;
  matrix.dtype = dtype;
  matrix.k = inputs.size();
  matrix.outputs = matrix.k == 0 ? 0 : outputs;
  if (!format || matrix.k == 0) return matrix;
  matrix.e4m3_rounding = format->e4m3_rounding;
  if (matrix.e4m3_rounding) matrix.e4m3_rounding->first = inputs.begin;
  auto share = ShareOf(*format, inputs.begin, matrix.k);
  if (!share) return matrix;
  matrix.integers = share->layout;
  matrix.order = std::move(share->order);
  matrix.product = format->product;
  matrix.rounding = format->rounding;
  return matrix;
}

Range InputsOf(const DecoderSpec& spec, const Shard& shard, int layer, MatrixRole role) {
  switch (role) {
    case MatrixRole::kO: {
      const auto index = static_cast<size_t>(layer);
      const auto width = static_cast<size_t>(
          spec.latent.kv_rank > 0 ? spec.latent.value_dim : LayerHeads(spec, index).head_dim);
      const Range heads = shard.Heads(index).q_heads;
      return {heads.begin * width, heads.end * width};
    }
    case MatrixRole::kDown: {
      const LayerSpec& kinds = spec.layer_specs[static_cast<size_t>(layer)];
      return kinds.mlp == MlpKind::kExperts ? shard.shared_intermediate
                                            : shard.Intermediate(static_cast<size_t>(layer));
    }
    case MatrixRole::kExpertDown:
      return shard.expert_intermediate;
    case MatrixRole::kQueryUp:
      return {0, static_cast<size_t>(spec.latent.q_rank)};
    case MatrixRole::kLatentUp:
      return {0, static_cast<size_t>(spec.latent.kv_rank)};
    case MatrixRole::kQkv:
    case MatrixRole::kMlpIn:
    case MatrixRole::kExpertIn:
    case MatrixRole::kHead:
      return {0, static_cast<size_t>(spec.hidden)};
  }
  __builtin_unreachable();
}

size_t LayOutWeights(const DecoderSpec& spec, const FormatPlan& formats, bool moe_prepack,
                     std::byte* base, RankWeights& weights) {
  Arena arena(base);
  weights.layers.clear();
  for (int i = 0; i < spec.layers; ++i)
    weights.layers.push_back(LayOutLayer(spec, spec.layer_specs[static_cast<size_t>(i)],
                                         weights.shard, formats, moe_prepack, i, arena));
  weights.embedding_norm = LayOutNorm(spec, spec.names.embedding_norm, arena);
  weights.final_norm = LayOutNorm(spec, spec.names.final_norm, arena);
  LayOutStreams(spec, formats.dtype, arena, weights);
  if (!spec.has_head()) return arena.used();
  const size_t vocabulary = weights.shard.vocabulary.size();
  weights.head =
      arena.Matrix(ShareOfMatrix(spec, weights.shard, formats, -1, MatrixRole::kHead, vocabulary));
  return arena.used();
}

}  // namespace pinion
