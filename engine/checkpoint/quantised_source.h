#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/checkpoint/quantised.h"
#include "engine/checkpoint/scheme.h"
#include "engine/checkpoint/tensors.h"
#include "engine/spec/spec.h"

namespace pinion {

using QuantisedTensors = std::map<std::string, std::unique_ptr<QuantisedTensor>>;

// `plain` with some tensors that are stored quantised: Find and Rows return them as float32,
// dequantised when they are read; Quantised returns their integers.
std::unique_ptr<TensorSource> WithQuantised(std::unique_ptr<TensorSource> plain,
                                            QuantisedTensors quantised);

// The weights of the linears of every layer, which schemes quantise.
std::vector<std::string> LinearWeights(const DecoderSpec& spec);

// A checkpoint whose linears are stored as `scheme` says.
Result<std::unique_ptr<TensorSource>> OpenQuantisedLinears(std::unique_ptr<TensorSource> stored,
                                                           const DecoderSpec& spec,
                                                           const QuantScheme& scheme);

}  // namespace pinion
