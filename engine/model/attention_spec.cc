#include "engine/model/attention_spec.h"

#include <cmath>

namespace pinion {

AttentionSpec LayerAttention(const DecoderSpec& spec, size_t /*layer*/) {
  return {.scale = 1 / std::sqrt(static_cast<float>(spec.head_dim))};
}

KvShape CachedShape(const DecoderSpec& spec) {
  const auto head_dim = static_cast<size_t>(spec.head_dim);
  return {head_dim, head_dim};
}

}  // namespace pinion
