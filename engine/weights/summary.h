#pragma once

#include <string>

#include "engine/base/json.h"
#include "engine/checkpoint/model.h"
#include "engine/weights/format_plan.h"

namespace pinion {

// The output of `pinion model info`: the spec as read, parameters, bytes of weights and of KV per
// token in each dtype, and every tensor of `weights` that the spec names; for a quantised model
// also the memory that they take as `formats` say.
Json SummariseModel(const ModelFiles& files, const TensorSource& weights,
                    const FormatPlan& formats = {});

// The same for people: a table of about 40 lines, with the layers' tensors once.
std::string FormatModel(const ModelFiles& files, const TensorSource& weights,
                        const FormatPlan& formats = {});

}  // namespace pinion
