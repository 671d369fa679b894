#pragma once

#include <string>
#include <string_view>

#include "engine/base/result.h"
#include "engine/checkpoint/gguf.h"

namespace pinion {

// Beside a matrix in NVFP4 files hold a tensor with a factor of all its weights, in float32: [1],
// or [experts] for the matrices of all experts.

// "NAME.scale" of "NAME.weight".
std::string GgufScaleName(std::string_view matrix);

// The factor of a matrix, or of one expert's part of it (-1: of the whole). `scale` is the tensor
// of that name; it is refused beside other types, and unless its values are finite and above 0.
Result<float> ReadGgufScale(const GgufFile& gguf, const GgufTensor& scale, const GgufTensor& matrix,
                            int expert);

// An error if there is such a tensor beside `matrix`, whose reader multiplies by none.
Status RefuseGgufScale(const GgufFile& gguf, const GgufTensor& matrix);

}  // namespace pinion
