#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/spec/reach.h"
#include "engine/spec/spec.h"
#include "kernels/kernels.h"

namespace pinion {

// How one layer attends.
struct AttentionSpec {
  Reach reach;
  float scale = 1;     // multiplies q.k; > 0
  float soft_cap = 0;  // scores become soft_cap * tanh(score / soft_cap); 0: none
};

// The heads of a layer that attends; all layers have as many query heads.
struct HeadShape {
  int heads = 0, kv_heads = 0, head_dim = 0;

  int64_t q() const { return int64_t{heads} * head_dim; }  // elements of all queries
  int64_t kv() const { return int64_t{kv_heads} * head_dim; }
  friend bool operator==(const HeadShape&, const HeadShape&) = default;
};
HeadShape LayerHeads(const DecoderSpec& spec, size_t layer);
// Columns of a layer's dense MLP.
size_t MlpWidth(const DecoderSpec& spec, size_t layer);
// Of the widest heads of any layer.
int WidestHead(const DecoderSpec& spec);

AttentionSpec LayerAttention(const DecoderSpec& spec, size_t layer);

// The shape of one token's and KV head's entry in the cache.
struct KvShape {
  size_t key_dim = 0, value_dim = 0;  // elements
  // The values are the first value_dim elements of the keys and are not stored again (MLA).
  bool latent = false;

  size_t elements() const { return key_dim + (latent ? 0 : value_dim); }
  // Bytes of a block of one layer and KV head, scales included.
  uint64_t BlockBytes(kernels::KvDtype dtype, size_t block_tokens) const {
    const uint64_t keys = kernels::KvPlaneBlockBytes(dtype, block_tokens, key_dim);
    return keys + (latent ? 0 : kernels::KvPlaneBlockBytes(dtype, block_tokens, value_dim));
  }
  // Bytes read per token, with scales, without padding between blocks.
  uint64_t TokenBytes(kernels::KvDtype dtype) const {
    const size_t scales = kernels::IsScaled(dtype) ? (latent ? 1 : 2) * sizeof(kernels::Bf16) : 0;
    return elements() * kernels::SizeOf(dtype) + scales;
  }
};

// The shape in a layer that attends, and the widest of all layers.
KvShape CachedShape(const DecoderSpec& spec, size_t layer);
KvShape WidestCachedShape(const DecoderSpec& spec);

// Whether a layer has keys and values of its own in the cache.
bool Caches(const LayerSpec& layer);

// A token's key for the indexer, of one layer: 0 if there is none. Beside weights of that type; it
// has the type of activations, because a rounding may change what is chosen.
uint64_t IndexKeyBytes(const DecoderSpec& spec, kernels::Dtype dtype);

// Over all KV heads, as TokenBytes; an indexer's keys as they are beside weights of that type, or
// of bfloat16 if the cache holds bytes.
uint64_t KvBytesPerToken(const DecoderSpec& spec, kernels::KvDtype dtype, size_t layer);

// The state of a sequence in one recurrent layer, float32: the last inputs of its convolution,
// [width - 1][channels], and a state of `state_floats` for each value head, if it has any. All
// recurrent layers of a model are of one kind.
struct StateShape {
  size_t tail_floats = 0, state_floats = 0, value_heads = 0;

  // For so many of the key heads.
  static StateShape Of(const DeltaSpec& delta, size_t key_heads);
  // For so many of the channels.
  static StateShape Of(const ShortConvSpec& conv, size_t channels);
  // For so many of the heads, which need so many groups' B and C.
  static StateShape Of(const MambaSpec& mamba, size_t heads, size_t groups);
  // For all of a model's heads and channels.
  static StateShape Of(const DecoderSpec& spec);
  size_t floats() const { return tail_floats + state_floats * value_heads; }
};
// The number of layers that keep such a state.
size_t RecurrentLayers(const DecoderSpec& spec);
// Over all layers and heads; does not depend on the sequence's length.
uint64_t StateBytesPerSequence(const DecoderSpec& spec);

}  // namespace pinion
