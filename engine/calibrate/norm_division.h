#pragma once

#include <cstddef>
#include <vector>

#include "kernels/types.h"

namespace pinion {

// (values + offset) / factors - offset in `dtype`, as it is stored: a norm's weights or biases
// whose outputs shall shrink by the factors. Each factor becomes the ratio that really resulted, so
// that weights multiplied by it make up for the division exactly. A quotient that the dtype rounds
// to nothing or to infinity would lose its channel: bfloat16 stores Gemma's w - 1 in steps of 2^-8,
// so everything up to w = 2^-9 becomes 0. The factor of such a channel is moved towards 1 until the
// quotient is kept.
std::vector<std::byte> DivideNorm(kernels::Dtype dtype, float offset,
                                  const std::vector<float>& values, std::vector<float>& factors);

}  // namespace pinion
