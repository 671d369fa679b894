#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/spec.h"

namespace pinion {

// A tensor's function in the decoder; made-up weights take their distribution from it.
enum class TensorRole {
  kEmbedding,        // token or position embedding, and the head
  kNorm,             // a norm's weight
  kBias,             // of a linear or a norm
  kLinear,           // [outputs][inputs], read from a normalised stream
  kAttentionOutput,  // o, which adds to the residual stream
  kMlpOutput,        // down, which adds to it too
};

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  TensorRole role = TensorRole::kLinear;
  int layer = -1;  // -1: outside the layers
};

// Every tensor that the spec names, in the order of the computation. Checks of checkpoints,
// parameter counts, made-up weights and written checkpoints all use this list.
std::vector<TensorSpec> TensorList(const DecoderSpec& spec);

// "model.layers.{}.mlp.up_proj", 3 -> "model.layers.3.mlp.up_proj"
std::string LayerTensor(std::string_view pattern, int layer);

// "model.layers.{}.mlp.experts.{}.up_proj", 3, 7 -> "model.layers.3.mlp.experts.7.up_proj"
std::string ExpertTensor(std::string_view pattern, int layer, int expert);

// Product of the dimensions, which is known to fit (by ReadSpec's bounds and the header check).
uint64_t ElementCount(const std::vector<int64_t>& shape);

}  // namespace pinion
