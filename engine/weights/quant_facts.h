#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "engine/checkpoint/model.h"
#include "engine/weights/format_plan.h"

namespace pinion {

// Matrices of a checkpoint that are quantised alike.
struct QuantisedKind {
  std::string format;  // "AWQ int4"
  std::string scales;  // what shares one: "64 inputs of an output"
  bool symmetric = true;
  bool floats = false;     // of few bits, which are symmetric always: not worth saying
  bool act_order = false;  // the inputs of a group are not consecutive
  size_t matrices = 0;     // of the checkpoint, each expert's by itself
};

// In the order of the layers; none of a model that is not quantised.
std::vector<QuantisedKind> QuantisedKinds(const ModelFiles& files, const TensorSource& weights);
// The type of activations when they are multiplied with such matrices, and the one that the
// checkpoint asks for if it is another; empty if no matrix stays quantised.
std::string ActivationsText(const ModelFiles& files, const FormatPlan& formats);

std::string QuantisedText(const QuantisedKind& kind);
Json QuantisedJson(const std::vector<QuantisedKind>& kinds);

}  // namespace pinion
