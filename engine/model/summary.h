#pragma once

#include <string>

#include "engine/base/json.h"
#include "engine/model/model.h"

namespace pinion {

// What `pinion model info` says about a model: the spec that was read, parameters, bytes of weights
// and of KV per token in each dtype, and every tensor of `weights` that the spec names. Of a
// quantised model also what its `spec.formats` keep in memory.
Json SummariseModel(const ModelFiles& files, const TensorSource& weights);

// The same for people: a table of about 40 lines, with the layers' tensors once.
std::string FormatModel(const ModelFiles& files, const TensorSource& weights);

}  // namespace pinion
