#pragma once

#include <memory>
#include <string>

#include "engine/base/result.h"
#include "engine/checkpoint/quantised.h"
#include "engine/checkpoint/stored.h"

namespace pinion {

// A linear in NVFP4: e2m1 with a scale in e4m3 for each 16 inputs, and one float32 of the matrix.
//   compressed-tensors  weight_packed U8 [outputs][inputs / 2], the low nibble first,
//                       weight_scale F8_E4M3 [outputs][inputs / 16],
//                       weight_global_scale F32 [1], by which scales are divided
//   ModelOpt            the same as weight, weight_scale and weight_scale_2, by which they are
//                       multiplied
// A weight is twice its value, an integer, times half of its scale: nothing is rounded, and the
// matrix can stay in 4 bits (kernels::ScaleType::kE4m3). Null if the linear is stored in neither
// way. Errors name the tensor.
// Source: compressed-tensors, compressors/nvfp4; NVIDIA ModelOpt,
// quantization/qtensor/nvfp4_tensor.
Result<std::unique_ptr<QuantisedTensor>> OpenNvfp4(const std::string& module,
                                                   const StoredLookup& lookup);

}  // namespace pinion
