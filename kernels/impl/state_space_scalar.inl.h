#pragma once

// The reference of state space models' recurrence.

#include <cstddef>

#include "kernels/kernels.h"

namespace pinion::kernels::impl {
namespace {

void StateSpace(const StateSpaceArgs& args) {
  for (size_t token = 0; token < args.tokens; ++token) {
    const float *x = args.x + token * args.stride, *b = args.b + token * args.stride;
    const float* c = args.c + token * args.stride;
    const double decay = args.decay[token], dt = args.dt[token];
    for (size_t column = 0; column < args.head_dim; ++column) {
      double sum = static_cast<double>(args.skip) * x[column];
      for (size_t i = 0; i < args.state_dim; ++i) {
        float& cell = args.state[i * args.head_dim + column];
        cell = static_cast<float>(decay * cell + dt * x[column] * b[i]);
        sum += static_cast<double>(c[i]) * cell;
      }
      args.out[token * args.out_stride + column] = static_cast<float>(sum);
    }
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
