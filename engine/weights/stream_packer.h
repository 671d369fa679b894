#pragma once

#include "engine/checkpoint/tensors.h"
#include "engine/host/team.h"
#include "engine/spec/spec.h"
#include "engine/weights/weights.h"

namespace pinion {

// Pack this worker's part of a layer's weights by LayerInputSpec, AltUpSpec and laurel_rank
// (LayerWeights::input, alt_up and laurel), and of the model's by them outside of its layers
// (RankWeights). All of it is whole on every rank: it is a hundredth of the model, and cutting it
// would add an exchange to every layer.
void LoadStreams(const DecoderSpec& spec, int index, const TensorSource& source,
                 const Worker& worker, LayerWeights& layer);
void LoadStreams(const DecoderSpec& spec, const TensorSource& source, const Worker& worker,
                 RankWeights& weights);

}  // namespace pinion
