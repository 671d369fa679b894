#pragma once

// The reference of state space models' recurrence, and of its form for chunks of tokens: the
// equations of StateSpaceChunkArgs, one column at a time, in double.

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

void StateSpaceScores(const StateSpaceScoresArgs& args) {
  for (size_t t = 0; t < args.tokens; ++t)
    for (size_t s = 0; s < kStateChunk; ++s) {
      double sum = 0;
      for (size_t i = 0; s <= t && i < args.state_dim; ++i)
        sum += static_cast<double>(args.c[t * args.stride + i]) * args.b[s * args.stride + i];
      args.scores[t * args.scores_stride + s] = static_cast<float>(sum);
    }
}

// A column's outputs and its cells after the chunk. between[t][s]: D(t, s) dt_s.
void StateSpaceColumn(const StateSpaceChunkArgs& args, size_t column,
                      const double (&between)[kStateChunk][kStateChunk],
                      const double (&from_start)[kStateChunk]) {
  double x[kStateChunk];
  for (size_t t = 0; t < args.tokens; ++t) x[t] = args.x[t * args.stride + column];
  for (size_t t = 0; t < args.tokens; ++t) {
    double held = 0, sum = args.skip * x[t];
    for (size_t i = 0; i < args.state_dim; ++i)
      held +=
          static_cast<double>(args.c[t * args.stride + i]) * args.state[i * args.head_dim + column];
    for (size_t s = 0; s <= t; ++s)
      sum += between[t][s] * args.scores[t * args.scores_stride + s] * x[s];
    args.out[t * args.out_stride + column] = static_cast<float>(from_start[t] * held + sum);
  }
  for (size_t i = 0; i < args.state_dim; ++i) {
    float& cell = args.state[i * args.head_dim + column];
    double sum = from_start[args.tokens - 1] * cell;
    for (size_t s = 0; s < args.tokens; ++s)
      sum += between[args.tokens - 1][s] * args.b[s * args.stride + i] * x[s];
    cell = static_cast<float>(sum);
  }
}

void StateSpaceChunk(const StateSpaceChunkArgs& args) {
  double between[kStateChunk][kStateChunk] = {}, from_start[kStateChunk];
  for (size_t t = 0; t < args.tokens; ++t) {
    from_start[t] = args.decay[t] * (t > 0 ? from_start[t - 1] : 1.0);
    for (size_t s = 0; s < t; ++s) between[t][s] = args.decay[t] * between[t - 1][s];
    between[t][t] = args.dt[t];
  }
  for (size_t column = 0; column < args.head_dim; ++column)
    StateSpaceColumn(args, column, between, from_start);
}

}  // namespace
}  // namespace pinion::kernels::impl
