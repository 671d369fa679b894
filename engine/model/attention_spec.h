#pragma once

#include <cstddef>
#include <vector>

#include "engine/model/spec.h"

namespace pinion {

// How one layer attends.
struct AttentionSpec {
  int window = 0;      // a token sees itself and the window - 1 before it; 0: everything before it
  float scale = 1;     // multiplies q.k; > 0
  float soft_cap = 0;  // scores become soft_cap * tanh(score / soft_cap); 0: none
};

AttentionSpec LayerAttention(const DecoderSpec& spec, size_t layer);

// What the cache holds of one token and KV head.
struct KvShape {
  size_t key_dim = 0, value_dim = 0;  // elements
  // The values are the first value_dim elements of the keys and are not stored again (MLA).
  bool latent = false;

  size_t elements() const { return key_dim + (latent ? 0 : value_dim); }
};

KvShape CachedShape(const DecoderSpec& spec);

}  // namespace pinion
