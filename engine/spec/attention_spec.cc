#include "engine/spec/attention_spec.h"

namespace pinion {

AttentionSpec LayerAttention(const DecoderSpec& spec, size_t layer) {
  return {.window = spec.layer_specs[layer].window,
          .scale = spec.attention_scale,
          .soft_cap = spec.attention_soft_cap};
}

KvShape CachedShape(const DecoderSpec& spec) {
  const auto head_dim = static_cast<size_t>(spec.head_dim);
  if (spec.latent.kv_rank > 0) return {head_dim, static_cast<size_t>(spec.latent.kv_rank), true};
  return {head_dim, head_dim};
}

uint64_t KvBytesPerToken(const DecoderSpec& spec, kernels::KvDtype dtype) {
  return uint64_t{1} * spec.layers * spec.kv_heads * CachedShape(spec).TokenBytes(dtype);
}

}  // namespace pinion
