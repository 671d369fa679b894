#pragma once

#include <cstddef>

#include "engine/model/weights.h"

namespace pinion {

// A matrix without memory yet; `format` and `inputs` as FormatPlan and ShareOf have them.
PackedMatrix MatrixOf(kernels::Dtype dtype, size_t outputs, Range inputs,
                      const IntegerFormat* format);

// The columns that a shard has of a layer's matrix (any layer, for the head).
Range InputsOf(const DecoderSpec& spec, const Shard& shard, int layer, MatrixRole role);

// Places everything that `weights.shard` holds in memory from `base` on, 64-byte aligned, and
// returns the bytes that it takes. With a null base it only counts. Without moe_prepack experts
// get their shapes and no memory.
size_t LayOutWeights(const DecoderSpec& spec, kernels::Dtype dtype, bool moe_prepack,
                     std::byte* base, RankWeights& weights);

}  // namespace pinion
