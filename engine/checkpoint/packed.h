#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/base/result.h"
#include "engine/checkpoint/quantised.h"
#include "engine/checkpoint/scheme.h"
#include "engine/checkpoint/stored.h"

namespace pinion {

// A checkpoint's scale and zero point for the activations of a linear.
struct StaticRounding {
  float scale = 1;
  int zero_point = 0;  // -128 to 127
};

// The quantised weight of the linear `module` ("model.layers.0.mlp.up_proj"); null if its weight is
// not quantised, which every scheme allows for some linears. Types, shapes, group indices and the
// order of zeros are checked; errors name the tensor.
Result<std::unique_ptr<QuantisedTensor>> OpenQuantised(const QuantScheme& scheme,
                                                       const std::string& module,
                                                       const StoredLookup& lookup);

// The static rounding of a linear's activations.
Result<StaticRounding> ReadStaticRounding(const std::string& module, const StoredLookup& lookup);

// The static scale by which a linear's activations are rounded to e4m3: its input_scale, or
// activation_scale as transformers' own FP8 files have it; empty if it has neither.
Result<std::optional<float>> ReadInputScale(const std::string& module, const StoredLookup& lookup);

}  // namespace pinion
