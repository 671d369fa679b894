#pragma once

// The gated delta rule for a chunk of tokens (DeltaChunkArgs has the equations), by the register
// tiles of the GEMM. The columns of a state depend on one another in nothing, so the products with
// keys and queries alone come first and are shared by all panels of columns; within a panel the
// triangular system is solved in groups of a tile's rows: a product with all groups before, then
// substitution within the group.

#include "kernels/impl/math.inl.h"
#include "kernels/impl/tile.inl.h"

namespace pinion::kernels::impl {
namespace {

// y[rows][columns] = x[rows][steps] w[steps][columns], or +=. columns: whole tiles.
struct DeltaProduct {
  const float* x;
  size_t x_stride;
  const float* w;
  size_t w_stride, steps;
  float* y;
  size_t y_stride;
  bool accumulate;
};

template <int kColumns>
TileFn<OperandF32> DeltaTile(size_t rows) {
  static_assert(kTileRows == 6);
  constexpr TileFn<OperandF32> kTiles[] = {
      Tile<OperandF32, 1, kColumns>, Tile<OperandF32, 2, kColumns>, Tile<OperandF32, 3, kColumns>,
      Tile<OperandF32, 4, kColumns>, Tile<OperandF32, 5, kColumns>, Tile<OperandF32, 6, kColumns>};
  return kTiles[rows - 1];
}

// At most kTileRows rows and kColumns vectors.
template <int kColumns>
void MultiplyTile(const DeltaProduct& product, size_t rows) {
  const auto* w = reinterpret_cast<const std::byte*>(product.w);
  TileArgs<OperandF32> tile = {.segments = 1, .w_stride = product.w_stride * sizeof(float)};
  tile.x = product.x;
  tile.x_stride = product.x_stride;
  tile.w = &w;
  tile.steps = &product.steps;
  tile.y = product.y;
  tile.y_stride = product.y_stride;
  tile.accumulate = product.accumulate;
  DeltaTile<kColumns>(rows)(tile);
}

void Multiply(const DeltaProduct& product, size_t rows, size_t columns) {
  const RowGroups groups(rows, kTileRows);
  for (size_t column = 0; column < columns; column += kWide * kLanes) {
    for (size_t group = 0; group < groups.count; ++group) {
      DeltaProduct part = product;
      part.x += groups.Begin(group) * product.x_stride;
      part.w += column;
      part.y += groups.Begin(group) * product.y_stride + column;
      MultiplyTile<kWide>(part, groups.Size(group));
    }
  }
}

struct DeltaScratch {
  explicit DeltaScratch(const DeltaChunkArgs& args)
      : keys(args.scratch),
        panel(keys + args.key_dim * kDeltaChunk),
        known(panel + args.key_dim * kDeltaPanel),
        seen(known + kDeltaChunk * kDeltaChunk),
        change(seen + kDeltaChunk * kDeltaChunk),
        sum(change + kDeltaChunk * kDeltaPanel) {}

  float* keys;          // [key_dim][kDeltaChunk], transposed
  float* panel;         // [key_dim][kDeltaPanel] of the state
  float *known, *seen;  // [tokens][kDeltaChunk]: the factors of u_s, the first negated
  float *change, *sum;  // [tokens][kDeltaPanel]: u and the output
  float from_start[kDeltaChunk], to_end[kDeltaChunk];  // D(t, 0), D(tokens, t)
};

void TransposeKeys(const DeltaChunkArgs& args, float* keys) {
  for (size_t i = 0; i < args.key_dim; ++i, keys += kDeltaChunk) {
    for (size_t t = 0; t < args.tokens; ++t) keys[t] = args.k[t * args.key_dim + i];
    for (size_t t = args.tokens; t < kDeltaChunk; ++t) keys[t] = 0;
  }
}

// Products of rows of x with all keys that are not after them, in whole tiles.
void MultiplyKeys(const DeltaChunkArgs& args, const float* x, const float* keys, float* scores) {
  constexpr int kColumns = kWide / 2;
  const RowGroups groups(args.tokens, kTileRows);
  for (size_t group = 0; group < groups.count; ++group) {
    const size_t row = groups.Begin(group), end = groups.Begin(group + 1);
    for (size_t column = 0; column < end; column += kColumns * kLanes)
      MultiplyTile<kColumns>({.x = x + row * args.key_dim,
                              .x_stride = args.key_dim,
                              .w = keys + column,
                              .w_stride = kDeltaChunk,
                              .steps = args.key_dim,
                              .y = scores + row * kDeltaChunk + column,
                              .y_stride = kDeltaChunk,
                              .accumulate = false},
                             end - row);
  }
}

// Decays between tokens into the products of keys and queries with keys, which also become zero
// where s > t. Products too small for a normal number become 0: arithmetic with subnormal numbers
// may take a hundred times as long.
void Decay(const DeltaChunkArgs& args, DeltaScratch& scratch) {
  const Vec least = Set(0x1p-126f);
  float* between = scratch.to_end;  // D(t, s) of the row; that of the last one stays
  for (size_t s = 0; s < kDeltaChunk; ++s) between[s] = 0;
  float from_start = 1;
  for (size_t t = 0; t < args.tokens; ++t) {
    from_start *= args.decay[t];
    if (from_start < 0x1p-126f) from_start = 0;
    scratch.from_start[t] = from_start;
    float *known = scratch.known + t * kDeltaChunk, *seen = scratch.seen + t * kDeltaChunk;
    const Vec decay = Set(args.decay[t]), factor = Set(-args.beta[t]);
    for (size_t s = 0; s < kDeltaChunk; s += kLanes) {
      const Vec product = Load(between + s) * decay;
      const Vec decays = ZeroWhereBelow(product, product, least);
      Store(between + s, decays);
      Store(known + s, factor * decays * Load(known + s));
    }
    between[t] = 1;
    for (size_t s = 0; s < kDeltaChunk; s += kLanes)
      Store(seen + s, Load(between + s) * Load(seen + s));
  }
}

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
  with_state(args.k, scratch.change);
  with_state(args.q, scratch.sum);
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

// The panel after the chunk, from what PanelOutputs leaves in `change`.
void UpdatePanel(const DeltaChunkArgs& args, const DeltaScratch& scratch, size_t columns) {
  for (size_t t = 0; t < args.tokens; ++t) {
    float* change = scratch.change + t * kDeltaPanel;
    const Vec decay = Set(scratch.to_end[t]);
    for (size_t i = 0; i < columns; i += kLanes) Store(change + i, decay * Load(change + i));
  }
  const Vec decay = Set(scratch.from_start[args.tokens - 1]);
  for (size_t i = 0; i < args.key_dim; ++i)
    for (size_t j = 0; j < columns; j += kLanes)
      Store(scratch.panel + i * kDeltaPanel + j, decay * Load(scratch.panel + i * kDeltaPanel + j));
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
  TransposeKeys(args, scratch.keys);
  MultiplyKeys(args, args.k, scratch.keys, scratch.known);
  MultiplyKeys(args, args.q, scratch.keys, scratch.seen);
  Decay(args, scratch);
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
