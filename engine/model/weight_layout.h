#pragma once

#include <cstddef>

#include "engine/model/weights.h"

namespace pinion {

// A matrix without memory yet; `format` and `column` as FormatPlan and LayoutOf have them.
PackedMatrix MatrixOf(kernels::Dtype dtype, size_t outputs, size_t k, const IntegerFormat* format,
                      size_t column);

// Places everything that `weights.shard` holds in memory from `base` on, 64-byte aligned, and
// returns the bytes that it takes. With a null base it only counts. Without moe_prepack experts
// get their shapes and no memory.
size_t LayOutWeights(const DecoderSpec& spec, kernels::Dtype dtype, bool moe_prepack,
                     std::byte* base, RankWeights& weights);

}  // namespace pinion
