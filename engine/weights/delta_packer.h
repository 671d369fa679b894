#pragma once

#include "engine/checkpoint/tensors.h"
#include "engine/host/team.h"
#include "engine/spec/spec.h"
#include "engine/weights/weights.h"

namespace pinion {

// Packs this worker's part of a layer's Gated DeltaNet (LayerWeights::delta and qkv).
void LoadDeltaNet(const DecoderSpec& spec, int index, const TensorSource& source,
                  const Worker& worker, const Shard& shard, LayerWeights& layer);

}  // namespace pinion
