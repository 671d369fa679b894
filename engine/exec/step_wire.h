#pragma once

#include <optional>
#include <string>

#include "engine/exec/step.h"

namespace pinion {

// A step's input as bytes, for a process of this binary on a machine of the same byte order.
std::string Encode(const StepInput& input);
// Nothing if `bytes` are not a whole step, or more than one.
std::optional<StepInput> DecodeStep(const std::string& bytes);

}  // namespace pinion
