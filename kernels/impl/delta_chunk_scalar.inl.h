#pragma once

// The reference of the gated delta rule in chunks: the equations of DeltaChunkArgs, one value
// column at a time, in double.

#include <cstddef>

#include "kernels/kernels.h"

namespace pinion::kernels::impl {
namespace {

double DecayOf(const DeltaChunkArgs& args, size_t t, size_t i) {
  return args.decays != nullptr ? args.decays[t * args.key_dim + i] : args.decay[t];
}

// [t][s]: k_t and q_t times diag(D(t, s)) k_s.
struct DeltaProducts {
  double known[kDeltaChunk][kDeltaChunk] = {}, seen[kDeltaChunk][kDeltaChunk] = {};
  explicit DeltaProducts(const DeltaChunkArgs& args) {
    for (size_t i = 0; i < args.key_dim; ++i) {
      for (size_t s = 0; s < args.tokens; ++s) {
        double reach = args.k[s * args.key_dim + i];  // D(t, s) k_s
        for (size_t t = s; t < args.tokens; ++t) {
          if (t > s) reach *= DecayOf(args, t, i);
          known[t][s] += args.k[t * args.key_dim + i] * reach;
          seen[t][s] += args.q[t * args.key_dim + i] * reach;
        }
      }
    }
  }
};

// One column's products of k_t and q_t with diag(D(t, 0)) S_0.
struct DeltaHeld {
  double by_key[kDeltaChunk] = {}, by_query[kDeltaChunk] = {};
  DeltaHeld(const DeltaChunkArgs& args, size_t column) {
    for (size_t i = 0; i < args.key_dim; ++i) {
      double cell = args.state[i * args.value_dim + column];
      for (size_t t = 0; t < args.tokens; ++t) {
        cell *= DecayOf(args, t, i);
        by_key[t] += args.k[t * args.key_dim + i] * cell;
        by_query[t] += args.q[t * args.key_dim + i] * cell;
      }
    }
  }
};

void DeltaChunk(const DeltaChunkArgs& args) {
  const DeltaProducts products(args);
  for (size_t column = 0; column < args.value_dim; ++column) {
    const DeltaHeld held(args, column);
    double change[kDeltaChunk];
    for (size_t t = 0; t < args.tokens; ++t) {
      change[t] = args.v[t * args.v_stride + column] - held.by_key[t];
      for (size_t s = 0; s < t; ++s) change[t] -= products.known[t][s] * change[s];
      change[t] *= args.beta[t];
      double sum = held.by_query[t];
      for (size_t s = 0; s <= t; ++s) sum += products.seen[t][s] * change[s];
      args.out[t * args.value_dim + column] = static_cast<float>(sum);
    }
    for (size_t i = 0; i < args.key_dim; ++i) {
      float& cell = args.state[i * args.value_dim + column];
      double sum = cell;
      for (size_t t = 0; t < args.tokens; ++t)
        sum = sum * DecayOf(args, t, i) + args.k[t * args.key_dim + i] * change[t];
      cell = static_cast<float>(sum);
    }
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
