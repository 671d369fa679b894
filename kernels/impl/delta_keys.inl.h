#pragma once

// The first part of the gated delta rule for a chunk of tokens: the products of keys and queries
// with keys and decays, which all columns of the state share.

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
        sum(change + kDeltaChunk * kDeltaPanel),
        decayed(sum + kDeltaChunk * kDeltaPanel) {}

  float* keys;          // [key_dim][kDeltaChunk], transposed
  float* panel;         // [key_dim][kDeltaPanel] of the state
  float *known, *seen;  // [tokens][kDeltaChunk]: the factors of u_s, the first negated
  float *change, *sum;  // [tokens][kDeltaPanel]: u and the output
  float* decayed;       // for decays of channels
  float from_start[kDeltaChunk], to_end[kDeltaChunk];  // D(t, 0), D(tokens, t)
  // [tokens][key_dim]: the factors of the state before the chunk, and then by from_start.
  const float *k = nullptr, *q = nullptr;
  const float* held = nullptr;  // [key_dim]: D(tokens, 0) of channels
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

}  // namespace
}  // namespace pinion::kernels::impl
