#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/checkpoint/scheme.h"
#include "engine/checkpoint/tensors.h"
#include "engine/spec/format_plan.h"
#include "engine/spec/spec.h"

namespace pinion {

// The modules whose rows make a matrix of a layer (any, for the head), one after the other; none if
// the layer has no such matrix.
std::vector<std::string> ModulesOf(const DecoderSpec& spec, int layer, MatrixRole role);

// A matrix stays in integers if all tensors that it is made of are stored so, in the same groups of
// columns: W8A8 and FP8 always, weight-only formats unless `weight_only` is empty (they are then
// dequantised at loading), and the head if `int8_head` (the source then has integers for it).
// Experts whose groups are not consecutive columns do not, because a token's activations are
// prepared once for all its experts. Errors are those of the checkpoint's own roundings.
Result<FormatPlan> PlanFormats(const DecoderSpec& spec, const TensorSource& source,
                               const std::optional<QuantScheme>& scheme,
                               std::optional<IntegerProduct> weight_only, bool int8_head);

}  // namespace pinion
