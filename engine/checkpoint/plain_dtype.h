#pragma once

#include <optional>
#include <string_view>

#include "kernels/types.h"

namespace pinion {

// The types of tensors that are not quantised, by their names in checkpoints of both formats: F32,
// BF16 and F16.
std::optional<kernels::Dtype> PlainDtype(std::string_view name);
const char* PlainName(kernels::Dtype dtype);

}  // namespace pinion
