#pragma once

// State space models in chunks of tokens (StateSpaceChunkArgs has the equations). Sums stay in
// registers over both parts of an output: the product of C with the state before the chunk, times
// the decay since then, and that of the chunk's own scores with x. The state is updated in place.

#include "kernels/impl/delta_chunk.inl.h"
#include "kernels/impl/state_space.inl.h"

namespace pinion::kernels::impl {
namespace {

// sums += x w. Of x, rows lie row_stride floats apart and steps step_stride.
struct StateProduct {
  const float* x;
  size_t row_stride, step_stride;
  const float* w;
  size_t w_stride, steps;
};

template <int kRows, int kColumns>
[[gnu::always_inline]] inline void AddStateProduct(const StateProduct& product,
                                                   Vec (&sums)[kRows][kColumns]) {
  const float *x = product.x, *w = product.w;
  for (size_t step = product.steps; step > 0; --step) {
    Vec weights[kColumns];
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) weights[c] = Load(w + c * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vec spread = Set(x[r * product.row_stride]);
#pragma GCC unroll 16
      for (int c = 0; c < kColumns; ++c) sums[r][c] = Fma(weights[c], spread, sums[r][c]);
    }
    x += product.step_stride;
    w += product.w_stride;
  }
}

// y = x1 w1 factors + x2 w2, factors one a row; or, without a first product, y = y factor + x2 w2.
struct StateTileArgs {
  StateProduct first, second;
  const float* factors;  // [rows]; [1] without a first product
  float* y;
  size_t y_stride;
};
using StateTileFn = void (*)(const StateTileArgs&);

template <bool kFirst, int kRows, int kColumns>
void StateTile(const StateTileArgs& args) {
  Vec sums[kRows][kColumns];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c)
      sums[r][c] =
          kFirst ? Set(0) : Set(*args.factors) * Load(args.y + r * args.y_stride + c * kLanes);
  }
  if constexpr (kFirst) {
    AddStateProduct(args.first, sums);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int c = 0; c < kColumns; ++c) sums[r][c] = Set(args.factors[r]) * sums[r][c];
    }
  }
  AddStateProduct(args.second, sums);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) Store(args.y + r * args.y_stride + c * kLanes, sums[r][c]);
  }
}

template <bool kFirst, int kColumns>
StateTileFn StateTileOf(size_t rows) {
  static_assert(kTileRows == 6);
  constexpr StateTileFn kTiles[] = {StateTile<kFirst, 1, kColumns>, StateTile<kFirst, 2, kColumns>,
                                    StateTile<kFirst, 3, kColumns>, StateTile<kFirst, 4, kColumns>,
                                    StateTile<kFirst, 5, kColumns>, StateTile<kFirst, 6, kColumns>};
  return kTiles[rows - 1];
}

// A head's own part of the chunk.
struct StateChunkScratch {
  explicit StateChunkScratch(const StateSpaceChunkArgs& args)
      : seen(args.scratch), x(seen + kStateChunk * kStateChunk) {}

  float* seen;  // [tokens][kStateChunk]: the factors of x_s in out_t
  float* x;     // [tokens][kWide * kLanes]: of the columns that are computed
  float from_start[kStateChunk], to_end[kStateChunk];  // D(t, 0), D(tokens, t) dt_t
};

// The factors of x, from the products of C with B, up to the vector's end; 0 where s > t. Factors
// too small for a normal number become 0: arithmetic with subnormal numbers may take a hundred
// times as long.
void DecayScores(const StateSpaceChunkArgs& args, StateChunkScratch& scratch) {
  const Vec least = Set(0x1p-126f);
  float* between = scratch.to_end;  // D(t, s) dt_s of the row; that of the last one stays
  for (size_t s = 0; s < kStateChunk; ++s) between[s] = 0;
  float from_start = 1;
  for (size_t t = 0; t < args.tokens; ++t) {
    from_start *= args.decay[t];
    if (from_start < 0x1p-126f) from_start = 0;
    scratch.from_start[t] = from_start;
    const float* scores = args.scores + t * args.scores_stride;
    float* seen = scratch.seen + t * kStateChunk;
    const Vec decay = Set(args.decay[t]);
    for (size_t s = 0; s < t; s += kLanes) {
      const Vec product = decay * Load(between + s);
      Store(between + s, ZeroWhereBelow(product, product, least));
    }
    between[t] = args.dt[t];
    for (size_t s = 0; s < kStateChunk; s += kLanes)
      Store(seen + s, s <= t ? Load(between + s) * Load(scores + s) : Set(0));
    seen[t] += args.skip;
  }
}

template <int kColumns>
void StateChunkColumns(const StateSpaceChunkArgs& args, StateChunkScratch& scratch, size_t column) {
  constexpr size_t kFloats = kColumns * kLanes;
  for (size_t t = 0; t < args.tokens; ++t)
    for (size_t i = 0; i < kFloats; i += kLanes)
      Store(scratch.x + t * kFloats + i, Load(args.x + t * args.stride + column + i));
  StateTileArgs tile = {};
  tile.y_stride = args.out_stride;
  const RowGroups tokens(args.tokens, kTileRows);
  for (size_t group = 0; group < tokens.count; ++group) {
    const size_t begin = tokens.Begin(group), end = tokens.Begin(group + 1);
    tile.first = {args.c + begin * args.stride, args.stride,   1,
                  args.state + column,          args.head_dim, args.state_dim};
    tile.second = {scratch.seen + begin * kStateChunk, kStateChunk, 1, scratch.x, kFloats, end};
    tile.factors = scratch.from_start + begin;
    tile.y = args.out + begin * args.out_stride + column;
    StateTileOf<true, kColumns>(end - begin)(tile);
  }
  for (size_t t = 0; t < args.tokens; ++t)
    for (size_t i = 0; i < kFloats; i += kLanes) {
      float* x = scratch.x + t * kFloats + i;
      Store(x, Set(scratch.to_end[t]) * Load(x));
    }
  tile.y_stride = args.head_dim;
  tile.factors = scratch.from_start + args.tokens - 1;
  const RowGroups cells(args.state_dim, kTileRows);
  for (size_t group = 0; group < cells.count; ++group) {
    const size_t begin = cells.Begin(group);
    tile.second = {args.b + begin, 1, args.stride, scratch.x, kFloats, args.tokens};
    tile.y = args.state + begin * args.head_dim + column;
    StateTileOf<false, kColumns>(cells.Size(group))(tile);
  }
}

// The last columns, which do not fill a vector: token by token.
void StateChunkTail(const StateSpaceChunkArgs& args, size_t column) {
  const StateSpaceArgs each = {.state = args.state,
                               .x = args.x,
                               .b = args.b,
                               .c = args.c,
                               .stride = args.stride,
                               .tokens = args.tokens,
                               .state_dim = args.state_dim,
                               .head_dim = args.head_dim,
                               .decay = args.decay,
                               .dt = args.dt,
                               .skip = args.skip,
                               .out = args.out,
                               .out_stride = args.out_stride};
  for (size_t token = 0; token < args.tokens; ++token) StateSpaceColumns<1, 1>(each, token, column);
}

// Columns from `column` on, fewer than kColumns vectors.
template <int kColumns>
void StateChunkRest(const StateSpaceChunkArgs& args, StateChunkScratch& scratch, size_t column) {
  if constexpr (kColumns > 1) {
    if (args.head_dim - column >= (kColumns - 1) * kLanes) {
      StateChunkColumns<kColumns - 1>(args, scratch, column);
      column += (kColumns - 1) * kLanes;
    }
    StateChunkRest<kColumns - 1>(args, scratch, column);
  } else if (column < args.head_dim) {
    StateChunkTail(args, column);
  }
}

void StateSpaceChunk(const StateSpaceChunkArgs& args) {
  StateChunkScratch scratch(args);
  DecayScores(args, scratch);
  size_t column = 0;
  for (; column + kWide * kLanes <= args.head_dim; column += kWide * kLanes)
    StateChunkColumns<kWide>(args, scratch, column);
  StateChunkRest<kWide>(args, scratch, column);
}

// Rows of C with all rows of B that are not after them, in whole tiles.
void StateSpaceScores(const StateSpaceScoresArgs& args) {
  constexpr int kColumns = kWide / 2;
  float* keys = args.scratch;  // [state_dim][kStateChunk]: B, transposed
  for (size_t i = 0; i < args.state_dim; ++i)
    for (size_t t = 0; t < kStateChunk; ++t)
      keys[i * kStateChunk + t] = t < args.tokens ? args.b[t * args.stride + i] : 0;
  const RowGroups groups(args.tokens, kTileRows);
  for (size_t group = 0; group < groups.count; ++group) {
    const size_t row = groups.Begin(group), end = groups.Begin(group + 1);
    const auto* w = reinterpret_cast<const std::byte*>(keys);
    for (size_t column = 0; column < end; column += kColumns * kLanes) {
      TileArgs<OperandF32> tile = {.segments = 1, .w_stride = kStateChunk * sizeof(float)};
      tile.x = args.c + row * args.stride;
      tile.x_stride = args.stride;
      tile.w = &w;
      tile.steps = &args.state_dim;
      tile.y = args.scores + row * args.scores_stride + column;
      tile.y_stride = args.scores_stride;
      DeltaTile<kColumns>(end - row)(tile);
      w += kColumns * kLanes * sizeof(float);
    }
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
