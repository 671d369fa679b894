#pragma once

#include <memory>

#include "engine/base/result.h"
#include "engine/checkpoint/tensors.h"
#include "engine/spec/spec.h"

namespace pinion {

// GPT-OSS as published: a layer's experts in tensors of MXFP4 (OCP Microscaling Formats 1.0),
// mlp.experts.{gate_up,down}_proj_blocks [experts][outputs][inputs / 32][16] (the low nibble first)
// and _scales [experts][outputs][inputs / 32], gate and up outputs taking turns, with biases _bias.
// Shown as a linear for each expert, under the spec's names. A weight is twice its value, an
// integer, times half of its group's power of two: nothing is rounded,
// and the matrix can stay in 4 bits (kernels::ScaleType::kPower). Errors name the tensor.
Result<std::unique_ptr<TensorSource>> OpenMxfp4Experts(std::unique_ptr<TensorSource> stored,
                                                       const DecoderSpec& spec);

}  // namespace pinion
