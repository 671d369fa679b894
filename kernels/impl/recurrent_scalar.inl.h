#pragma once

// The reference for the arithmetic of recurrent layers.

#include <cstddef>

#include "kernels/kernels.h"

namespace pinion::kernels::impl {
namespace {

void DeltaRule(const DeltaRuleArgs& args) {
  const auto decay = [&args](size_t i) -> double {
    return args.decays != nullptr ? args.decays[i] : args.decay;
  };
  for (size_t column = 0; column < args.value_dim; ++column) {
    float* state = args.state + column;
    double known = 0, sum = 0;
    for (size_t i = 0; i < args.key_dim; ++i)
      known += args.k[i] * decay(i) * state[i * args.value_dim];
    const double change = args.beta * (args.v[column] - known);
    for (size_t i = 0; i < args.key_dim; ++i) {
      float& cell = state[i * args.value_dim];
      cell = static_cast<float>(decay(i) * cell + args.k[i] * change);
      sum += static_cast<double>(args.q[i]) * cell;
    }
    args.out[column] = static_cast<float>(sum);
  }
}

void ShortConv(const ShortConvArgs& args) {
  for (size_t row = args.rows; row-- > 0;) {
    for (size_t i = 0; i < args.n; ++i) {
      double sum = 0;
      for (size_t tap = 0; tap < args.width; ++tap)
        sum += static_cast<double>(args.weights[tap * args.weight_stride + i]) *
               args.inputs[row + tap][i];
      args.dst[row * args.stride + i] = static_cast<float>(sum);
    }
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
