#include "engine/spec/attention_spec.h"

#include <algorithm>

namespace pinion {

HeadShape LayerHeads(const DecoderSpec& spec, size_t layer) {
  const LayerSpec& own = spec.layer_specs[layer];
  return {spec.heads, own.kv_heads > 0 ? own.kv_heads : spec.kv_heads,
          own.head_dim > 0 ? own.head_dim : spec.head_dim};
}

bool Caches(const LayerSpec& layer) { return Attends(layer.mixer) && layer.kv_from < 0; }

size_t MlpWidth(const DecoderSpec& spec, size_t layer) {
  const int own = spec.layer_specs[layer].intermediate;
  return static_cast<size_t>(own > 0 ? own : spec.intermediate);
}

int WidestHead(const DecoderSpec& spec) {
  int widest = spec.head_dim;
  for (const LayerSpec& layer : spec.layer_specs) widest = std::max(widest, layer.head_dim);
  return widest;
}

namespace {

Reach ReachOf(const DecoderSpec& spec, const LayerSpec& kinds) {
  if (!spec.bidirectional)
    return {.window = kinds.window, .chunk = kinds.chunk, .chosen = spec.index.top_k};
  if (kinds.window == 0) return {.ahead = Reach::kWholeSequence};
  return {.window = 2 * kinds.window - 1, .ahead = kinds.window - 1};
}

}  // namespace

AttentionSpec LayerAttention(const DecoderSpec& spec, size_t layer) {
  const LayerSpec& kinds = spec.layer_specs[layer];
  return {.reach = ReachOf(spec, kinds),
          .scale = spec.attention_scale,
          .soft_cap = spec.attention_soft_cap};
}

namespace {

KvShape ShapeOf(const DecoderSpec& spec, int width) {
  const auto head_dim = static_cast<size_t>(width);
  if (spec.latent.kv_rank > 0) return {head_dim, static_cast<size_t>(spec.latent.kv_rank), true};
  return {head_dim, head_dim};
}

}  // namespace

KvShape CachedShape(const DecoderSpec& spec, size_t layer) {
  return ShapeOf(spec, LayerHeads(spec, layer).head_dim);
}

KvShape WidestCachedShape(const DecoderSpec& spec) { return ShapeOf(spec, WidestHead(spec)); }

size_t RecurrentLayers(const DecoderSpec& spec) {
  return static_cast<size_t>(
      std::count_if(spec.layer_specs.begin(), spec.layer_specs.end(),
                    [](const LayerSpec& layer) { return Recurs(layer.mixer); }));
}

uint64_t IndexKeyBytes(const DecoderSpec& spec, kernels::Dtype dtype) {
  return static_cast<uint64_t>(spec.index.dim) * kernels::SizeOf(kernels::ActivationType(dtype));
}

uint64_t KvBytesPerToken(const DecoderSpec& spec, kernels::KvDtype dtype, size_t layer) {
  const kernels::Dtype weights = dtype == kernels::KvDtype::kF32   ? kernels::Dtype::kF32
                                 : dtype == kernels::KvDtype::kF16 ? kernels::Dtype::kF16
                                                                   : kernels::Dtype::kBf16;
  return static_cast<uint64_t>(LayerHeads(spec, layer).kv_heads) *
             CachedShape(spec, layer).TokenBytes(dtype) +
         IndexKeyBytes(spec, weights);
}

StateShape StateShape::Of(const DeltaSpec& delta, size_t key_heads) {
  if (key_heads == 0) return {};
  const auto size = [](int n) { return static_cast<size_t>(n); };
  const size_t value_heads = key_heads * size(delta.heads_per_key());
  const size_t channels = 2 * key_heads * size(delta.key_dim) + value_heads * size(delta.value_dim);
  return {size(delta.conv_width - 1) * channels, size(delta.key_dim) * size(delta.value_dim),
          value_heads};
}

StateShape StateShape::Of(const ShortConvSpec& conv, size_t channels) {
  return {.tail_floats = static_cast<size_t>(conv.width - 1) * channels};
}

StateShape StateShape::Of(const MambaSpec& mamba, size_t heads, size_t groups) {
  if (heads == 0) return {};
  const auto size = [](int n) { return static_cast<size_t>(n); };
  const size_t channels = heads * size(mamba.head_dim) + 2 * groups * size(mamba.state_dim);
  return {size(mamba.conv_width - 1) * channels, size(mamba.state_dim) * size(mamba.head_dim),
          heads};
}

StateShape StateShape::Of(const DecoderSpec& spec) {
  if (spec.mamba.heads > 0)
    return Of(spec.mamba, static_cast<size_t>(spec.mamba.heads),
              static_cast<size_t>(spec.mamba.groups));
  if (spec.conv.width > 0) return Of(spec.conv, static_cast<size_t>(spec.hidden));
  return Of(spec.delta, static_cast<size_t>(spec.delta.key_heads));
}

uint64_t StateBytesPerSequence(const DecoderSpec& spec) {
  return uint64_t{RecurrentLayers(spec)} * StateShape::Of(spec).floats() * sizeof(float);
}

}  // namespace pinion
