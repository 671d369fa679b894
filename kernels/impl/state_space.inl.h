#pragma once

// The recurrence of state space models, and the cost of a head's state: it is read and written once
// for several tokens.

#include "kernels/impl/math.inl.h"

namespace pinion::kernels::impl {
namespace {

// kTokens tokens from `first` on, kVectors neighbouring vectors of columns: nothing of a column
// depends on the others. Each row of the state stays in registers while the tokens pass.
template <size_t kTokens, size_t kVectors>
void StateSpaceColumns(const StateSpaceArgs& args, size_t first, size_t column) {
  const size_t live = args.head_dim - column;  // less than a vector only if kVectors is 1
  const auto load = [live](const float* p, size_t v) {
    return LoadUpTo(p + v * kLanes, live - v * kLanes, Set(0));
  };
  const float* x = args.x + first * args.stride + column;
  const float* b = args.b + first * args.stride;
  const float* c = args.c + first * args.stride;
  Vec decay[kTokens], input[kTokens][kVectors], sum[kTokens][kVectors];
  for (size_t t = 0; t < kTokens; ++t) {
    decay[t] = Set(args.decay[first + t]);
    for (size_t v = 0; v < kVectors; ++v) {
      input[t][v] = Set(args.dt[first + t]) * load(x + t * args.stride, v);
      sum[t][v] = Set(0);
    }
  }
  float* row = args.state + column;
  for (size_t i = 0; i < args.state_dim; ++i, row += args.head_dim) {
    for (size_t v = 0; v < kVectors; ++v) {
      Vec cell = load(row, v);
      for (size_t t = 0; t < kTokens; ++t) {
        cell = Fma(Set(b[t * args.stride + i]), input[t][v], decay[t] * cell);
        sum[t][v] = Fma(Set(c[t * args.stride + i]), cell, sum[t][v]);
      }
      Put(row, Dtype::kF32, v * kLanes, cell, live - v * kLanes);
    }
  }
  float* out = args.out + first * args.out_stride + column;
  for (size_t t = 0; t < kTokens; ++t)
    for (size_t v = 0; v < kVectors; ++v)
      Put(out + t * args.out_stride, Dtype::kF32, v * kLanes,
          Fma(Set(args.skip), load(x + t * args.stride, v), sum[t][v]), live - v * kLanes);
}

template <size_t kTokens, size_t kVectors>
void StateSpaceTokens(const StateSpaceArgs& args, size_t first) {
  size_t column = 0;
  for (; column + kVectors * kLanes <= args.head_dim; column += kVectors * kLanes)
    StateSpaceColumns<kTokens, kVectors>(args, first, column);
  if constexpr (kVectors > 2) {  // whole rows of heads of two vectors are read in order
    for (; column + 2 * kLanes <= args.head_dim; column += 2 * kLanes)
      StateSpaceColumns<kTokens, 2>(args, first, column);
  }
  for (; column < args.head_dim; column += kLanes)
    StateSpaceColumns<kTokens, 1>(args, first, column);
}

// Registers hold decay, input and sum of four tokens for one vector of 8 lanes (of 16 registers) or
// two of 16 (of 32); of one token for four vectors, enough sums to hide an FMA's latency.
void StateSpace(const StateSpaceArgs& args) {
  constexpr size_t kTokens = 4;
  size_t token = 0;
  for (; token + kTokens <= args.tokens; token += kTokens)
    StateSpaceTokens<kTokens, kLanes == 16 ? 2 : 1>(args, token);
  for (; token < args.tokens; ++token) StateSpaceTokens<1, 4>(args, token);
}

}  // namespace
}  // namespace pinion::kernels::impl
