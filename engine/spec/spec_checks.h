#pragma once

#include "engine/base/result.h"
#include "engine/spec/spec.h"

namespace pinion {

// Whether the forward pass computes what the spec says: relations between numbers that are each in
// range, and properties that exclude each other. Errors name them.
Status CheckShape(const DecoderSpec& spec);

}  // namespace pinion
