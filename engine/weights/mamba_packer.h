#pragma once

#include "engine/checkpoint/tensors.h"
#include "engine/host/team.h"
#include "engine/spec/spec.h"
#include "engine/weights/weights.h"

namespace pinion {

// Packs this worker's part of a layer's Mamba-2. A rank without heads holds nothing.
void LoadMamba(const DecoderSpec& spec, int index, const TensorSource& source, const Worker& worker,
               const Shard& shard, MambaWeights& mamba);

}  // namespace pinion
