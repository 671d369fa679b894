#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/checkpoint/scheme.h"
#include "engine/checkpoint/tensors.h"
#include "engine/spec/spec.h"
#include "engine/weights/format_plan.h"

namespace pinion {

// The modules whose rows make a matrix of a layer (any, for the head), one after the other; none if
// the layer has no such matrix.
std::vector<std::string> ModulesOf(const DecoderSpec& spec, int layer, MatrixRole role);

// Choices about a model's formats at the start, whatever its checkpoint has.
struct FormatChoices {
  // Of matrices that do not stay in integers, and of activations.
  kernels::Dtype dtype = kernels::Dtype::kBf16;
  // How matrices of weight-only formats are multiplied; empty: they are dequantised at loading.
  std::optional<IntegerProduct> weight_only;
  bool int8_head = false;  // the source then has integers for the head
};

// A matrix stays in integers if all tensors that it is made of are stored so, in the same groups of
// columns: W8A8 and FP8 always, weight-only formats and the head by choice. Experts whose groups
// are not consecutive columns do not, because a token's activations are prepared once for all its
// experts. Errors are those of the checkpoint's own roundings.
Result<FormatPlan> PlanFormats(const DecoderSpec& spec, const TensorSource& source,
                               const std::optional<QuantScheme>& scheme,
                               const FormatChoices& choices);

}  // namespace pinion
