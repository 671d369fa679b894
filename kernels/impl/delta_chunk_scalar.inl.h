#pragma once

// The reference of the gated delta rule in chunks: the equations of DeltaChunkArgs, one value
// column at a time, in double.

#include <cstddef>

#include "kernels/kernels.h"

namespace pinion::kernels::impl {
namespace {

double DotOf(const float* a, const float* b, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

// S_0'x for one column of the state.
double TimesState(const DeltaChunkArgs& args, const float* x, size_t column) {
  double sum = 0;
  for (size_t i = 0; i < args.key_dim; ++i)
    sum += static_cast<double>(x[i]) * args.state[i * args.value_dim + column];
  return sum;
}

void DeltaChunk(const DeltaChunkArgs& args) {
  const size_t tokens = args.tokens, key_dim = args.key_dim;
  // D(t, s) of the sums: products of decays, built row by row.
  double between[kDeltaChunk][kDeltaChunk] = {}, from_start[kDeltaChunk];
  double known[kDeltaChunk][kDeltaChunk], seen[kDeltaChunk][kDeltaChunk];
  for (size_t t = 0; t < tokens; ++t) {
    from_start[t] = args.decay[t] * (t > 0 ? from_start[t - 1] : 1.0);
    for (size_t s = 0; s < t; ++s) between[t][s] = args.decay[t] * between[t - 1][s];
    between[t][t] = 1;
    for (size_t s = 0; s <= t; ++s) {
      const float* k = args.k + s * key_dim;
      known[t][s] = args.beta[t] * between[t][s] * DotOf(args.k + t * key_dim, k, key_dim);
      seen[t][s] = between[t][s] * DotOf(args.q + t * key_dim, k, key_dim);
    }
  }
  for (size_t column = 0; column < args.value_dim; ++column) {
    double change[kDeltaChunk];
    for (size_t t = 0; t < tokens; ++t) {
      const double held = from_start[t] * TimesState(args, args.k + t * key_dim, column);
      change[t] = args.beta[t] * (args.v[t * args.v_stride + column] - held);
      for (size_t s = 0; s < t; ++s) change[t] -= known[t][s] * change[s];
      double sum = from_start[t] * TimesState(args, args.q + t * key_dim, column);
      for (size_t s = 0; s <= t; ++s) sum += seen[t][s] * change[s];
      args.out[t * args.value_dim + column] = static_cast<float>(sum);
    }
    for (size_t i = 0; i < key_dim; ++i) {
      float& cell = args.state[i * args.value_dim + column];
      double sum = from_start[tokens - 1] * cell;
      for (size_t s = 0; s < tokens; ++s)
        sum += between[tokens - 1][s] * args.k[s * key_dim + i] * change[s];
      cell = static_cast<float>(sum);
    }
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
