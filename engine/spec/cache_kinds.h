#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/spec/spec.h"
#include "kernels/types.h"

namespace pinion {

// The cache that the layers of one kind keep of a sequence, with all heads of the model.
struct CacheKind {
  std::string name;  // "full", "windowed", "chunked", "latent" or "recurrent"
  size_t layers = 0;
  // Most tokens whose keys and values stay, of a sequence of any length; 0: all of them. None of a
  // recurrent layer's, which has a state.
  uint64_t most_tokens = 0;
  uint64_t token_bytes = 0;     // of each of these, over the layers; 0: a state
  uint64_t sequence_bytes = 0;  // of a sequence of the length asked for, over the layers

  bool operator==(const CacheKind&) const = default;
};

// By the first layer of each kind, recurrent ones last. A layer that sees a window counts as "full"
// if its block table keeps all tokens (KvReaches); one that sees another's keys and values keeps
// none; one with attention and a state beside it counts in both kinds. Their bytes add up to
// KvBytesOfSequence and StateBytesPerSequence.
std::vector<CacheKind> CacheKinds(const DecoderSpec& spec, kernels::KvDtype dtype, uint64_t tokens);

}  // namespace pinion
