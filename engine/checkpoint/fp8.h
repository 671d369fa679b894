#pragma once

#include <memory>

#include "engine/base/result.h"
#include "engine/checkpoint/scheme.h"
#include "engine/checkpoint/tensors.h"
#include "engine/spec/spec.h"

namespace pinion {

// A checkpoint whose linears are e4m3 times a scale: Find and Rows show them as float32, the
// product of both, exact up to one rounding; Quantised shows the bytes (CodeRange::e4m3). The scale
// is NAME_scale_inv (DeepSeek, Qwen) or NAME_scale (compressed-tensors) of the weight, despite the
// former's name; linears that are stored plainly stay so. Errors name the tensor.
Result<std::unique_ptr<TensorSource>> OpenFp8Linears(std::unique_ptr<TensorSource> stored,
                                                     const DecoderSpec& spec,
                                                     const QuantScheme& scheme);

}  // namespace pinion
