#pragma once

// The gated delta rule for a chunk of tokens (DeltaChunkArgs has the equations), by the register
// tiles of the GEMM. The columns of a state depend on one another in nothing, so the products with
// keys and queries alone come first and are shared by all panels of columns; within a panel the
// triangular system is solved in groups of a tile's rows: a product with all groups before, then
// substitution within the group.

#include "kernels/impl/delta_channels.inl.h"
#include "kernels/impl/delta_keys.inl.h"

namespace pinion::kernels::impl {
namespace {

// u for rows [begin, end) of a panel, `columns` wide, from those before.
void Substitute(const DeltaScratch& scratch, size_t begin, size_t end, size_t columns) {
  const float* known = scratch.known + begin * kDeltaChunk;
  float* change = scratch.change + begin * kDeltaPanel;
  if (begin > 0)
    Multiply({.x = known,
              .x_stride = kDeltaChunk,
              .w = scratch.change,
              .w_stride = kDeltaPanel,
              .steps = begin,
              .y = change,
              .y_stride = kDeltaPanel,
              .accumulate = true},
             end - begin, columns);
  for (size_t t = 1; t < end - begin; ++t) {
    for (size_t column = 0; column < columns; column += kLanes) {
      Vec sum = Load(change + t * kDeltaPanel + column);
      for (size_t s = 0; s < t; ++s)
        sum = Fma(Set(known[t * kDeltaChunk + begin + s]), Load(change + s * kDeltaPanel + column),
                  sum);
      Store(change + t * kDeltaPanel + column, sum);
    }
  }
}

// Outputs of the panel's columns from `column` on, of which `live` are the state's.
void PanelOutputs(const DeltaChunkArgs& args, const DeltaScratch& scratch, size_t column,
                  size_t live, size_t columns) {
  const auto with_state = [&](const float* x, float* y) {
    Multiply({.x = x,
              .x_stride = args.key_dim,
              .w = scratch.panel,
              .w_stride = kDeltaPanel,
              .steps = args.key_dim,
              .y = y,
              .y_stride = kDeltaPanel,
              .accumulate = false},
             args.tokens, columns);
  };
  with_state(scratch.k, scratch.change);
  with_state(scratch.q, scratch.sum);
  for (size_t t = 0; t < args.tokens; ++t) {
    const float* v = args.v + t * args.v_stride + column;
    float *change = scratch.change + t * kDeltaPanel, *sum = scratch.sum + t * kDeltaPanel;
    const Vec from_start = Set(scratch.from_start[t]), beta = Set(args.beta[t]);
    for (size_t i = 0; i < live; i += kLanes) {
      const Vec held = from_start * Load(change + i);
      Store(change + i, beta * (LoadUpTo(v + i, live - i, Set(0)) - held));
      Store(sum + i, from_start * Load(sum + i));
    }
  }
  const RowGroups groups(args.tokens, kTileRows);
  for (size_t group = 0; group < groups.count; ++group) {
    const size_t begin = groups.Begin(group), end = groups.Begin(group + 1);
    Substitute(scratch, begin, end, columns);
    Multiply({.x = scratch.seen + begin * kDeltaChunk,
              .x_stride = kDeltaChunk,
              .w = scratch.change,
              .w_stride = kDeltaPanel,
              .steps = end,
              .y = scratch.sum + begin * kDeltaPanel,
              .y_stride = kDeltaPanel,
              .accumulate = true},
             end - begin, columns);
  }
  for (size_t t = 0; t < args.tokens; ++t)
    for (size_t i = 0; i < live; i += kLanes)
      Put(args.out + t * args.value_dim + column, Dtype::kF32, i,
          Load(scratch.sum + t * kDeltaPanel + i), live - i);
}

// The panel after the chunk, from the values that PanelOutputs leaves in `change`.
void UpdatePanel(const DeltaChunkArgs& args, const DeltaScratch& scratch, size_t columns) {
  for (size_t t = 0; t < args.tokens; ++t) {
    float* change = scratch.change + t * kDeltaPanel;
    const Vec decay = Set(scratch.to_end[t]);
    for (size_t i = 0; i < columns; i += kLanes) Store(change + i, decay * Load(change + i));
  }
  const float from_start = scratch.from_start[args.tokens - 1];
  for (size_t i = 0; i < args.key_dim; ++i) {
    const Vec decay = Set(scratch.held != nullptr ? scratch.held[i] : from_start);
    for (size_t j = 0; j < columns; j += kLanes)
      Store(scratch.panel + i * kDeltaPanel + j, decay * Load(scratch.panel + i * kDeltaPanel + j));
  }
  Multiply({.x = scratch.keys,
            .x_stride = kDeltaChunk,
            .w = scratch.change,
            .w_stride = kDeltaPanel,
            .steps = args.tokens,
            .y = scratch.panel,
            .y_stride = kDeltaPanel,
            .accumulate = true},
           args.key_dim, columns);
}

void DeltaChunk(const DeltaChunkArgs& args) {
  DeltaScratch scratch(args);
  if (args.decays != nullptr) {
    MultiplyDecayedKeys(args, scratch);
  } else {
    TransposeKeys(args, scratch.keys);
    MultiplyKeys(args, args.k, scratch.keys, scratch.known);
    MultiplyKeys(args, args.q, scratch.keys, scratch.seen);
    Decay(args, scratch);
    scratch.k = args.k;
    scratch.q = args.q;
  }
  for (size_t column = 0; column < args.value_dim; column += kDeltaPanel) {
    const size_t rest = args.value_dim - column, live = rest < kDeltaPanel ? rest : kDeltaPanel;
    const size_t columns = RoundUp(live, kWide * kLanes);
    float* state = args.state + column;
    for (size_t i = 0; i < args.key_dim; ++i)
      for (size_t j = 0; j < columns; j += kLanes)
        Store(scratch.panel + i * kDeltaPanel + j,
              j < live ? LoadUpTo(state + i * args.value_dim + j, live - j, Set(0)) : Set(0));
    PanelOutputs(args, scratch, column, live, columns);
    UpdatePanel(args, scratch, columns);
    for (size_t i = 0; i < args.key_dim; ++i)
      for (size_t j = 0; j < live; j += kLanes)
        Put(state + i * args.value_dim, Dtype::kF32, j, Load(scratch.panel + i * kDeltaPanel + j),
            live - j);
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
