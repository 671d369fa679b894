#pragma once

#include <vector>

#include "engine/checkpoint/tensors.h"
#include "engine/host/team.h"
#include "engine/spec/spec.h"
#include "engine/weights/weights.h"

namespace pinion {

// Rows of a convolution's tensor [channels of the model][1][width].
struct ConvRows {
  TensorInfo tensor;
  Range rows;
};

// dst [width][channels] = these rows, one after the other.
void FillConv(const std::vector<ConvRows>& parts, const TensorSource& source, float* dst);

// Packs this worker's part of a layer's gated short convolution (LayerWeights::conv and qkv).
void LoadShortConv(const DecoderSpec& spec, int index, const TensorSource& source,
                   const Worker& worker, const Shard& shard, LayerWeights& layer);

}  // namespace pinion
