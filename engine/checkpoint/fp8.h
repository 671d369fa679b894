#pragma once

#include <memory>

#include "engine/base/result.h"
#include "engine/checkpoint/scheme.h"
#include "engine/checkpoint/tensors.h"
#include "engine/spec/spec.h"

namespace pinion {

// The value of a byte of float8_e4m3fn: 4 bits of exponent, 3 of mantissa; 0x7f and 0xff are NaN,
// there are no infinities (arXiv:2209.05433).
float E4m3(uint8_t byte);

// A checkpoint whose linears are e4m3 times a scale: Find and Rows show them as float32, the
// product of both, exact up to one rounding. The scale is NAME_scale_inv (DeepSeek, Qwen) or
// NAME_scale (compressed-tensors) of the weight, despite the former's name; linears that are stored
// plainly stay so. Errors name the tensor.
Result<std::unique_ptr<TensorSource>> OpenFp8Linears(std::unique_ptr<TensorSource> stored,
                                                     const DecoderSpec& spec,
                                                     const QuantScheme& scheme);

}  // namespace pinion
