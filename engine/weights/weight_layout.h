#pragma once

#include <cstddef>

#include "engine/weights/weights.h"

namespace pinion {

// A matrix without memory yet; `format` and `inputs` as from FormatPlan and ShareOf.
PackedMatrix MatrixOf(kernels::Dtype dtype, size_t outputs, Range inputs,
                      const IntegerFormat* format);

// A shard's columns of a layer's matrix (any layer, for the head).
Range InputsOf(const DecoderSpec& spec, const Shard& shard, int layer, MatrixRole role);

// Places everything that `weights.shard` holds in memory from `base` on, 64-byte aligned, and
// returns the bytes that it takes. With a null base it only counts. Without moe_prepack experts get
// their shapes but no memory.
size_t LayOutWeights(const DecoderSpec& spec, const FormatPlan& formats, bool moe_prepack,
                     std::byte* base, RankWeights& weights);

}  // namespace pinion
