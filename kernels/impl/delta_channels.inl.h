#pragma once

// The products of keys and queries with keys if each channel decays by itself: the sum over
// channels of k_t D(t, s) k_s. D is not a factor of such a sum, but it can be split at any token m
// between s and t: (D(t, m) k_t)'(D(m, s) k_s). Neither factor exceeds 1, so nothing overflows, and
// where one of them vanishes, so does the product. Tokens are taken in groups: the keys of all
// groups before are kept decayed up to the group's beginning, m, and multiplied by tiles; pairs
// within the group are summed up one by one (arXiv:2510.26692, sec. 3.2, splits chunks alike).

#include "kernels/impl/delta_keys.inl.h"

namespace pinion::kernels::impl {
namespace {

// Tokens of a group: more would take longer over pairs, fewer over decaying the keys before.
constexpr size_t kGroupTokens = 8;
static_assert(kGroupTokens <= kDeltaPairs);

// Tokens [begin, end) of a chunk.
struct DeltaGroup {
  size_t begin, end;
};

// x without what is too small for a normal number: arithmetic with subnormal numbers may take a
// hundred times as long.
Vec NormalOrZero(Vec x) { return ZeroWhereBelow(x, Max(x, Set(0) - x), Set(0x1p-126f)); }

// A vector of channels of a row [key_dim].
Vec LoadChannels(const DeltaChunkArgs& args, const float* rows, size_t t, size_t i) {
  return LoadUpTo(rows + t * args.key_dim + i, args.key_dim - i, Set(0));
}

// Keys and queries of a group, each times D(t, begin): [tokens of the group][key_dim]. held: the
// last D, [key_dim], if it is wanted.
void DecayRows(const DeltaChunkArgs& args, const DeltaGroup& group, float* k, float* q,
               float* held) {
  for (size_t i = 0; i < args.key_dim; i += kLanes) {
    const size_t live = args.key_dim - i;
    Vec decay = Set(1);
    for (size_t t = group.begin; t < group.end; ++t) {
      const size_t at = (t - group.begin) * args.key_dim + i;
      decay = NormalOrZero(decay * LoadChannels(args, args.decays, t, i));
      Put(k, Dtype::kF32, at, decay * LoadChannels(args, args.k, t, i), live);
      Put(q, Dtype::kF32, at, decay * LoadChannels(args, args.q, t, i), live);
    }
    if (held != nullptr) Put(held, Dtype::kF32, i, decay, live);
  }
}

// Transposed keys: those of the group become D(end, s) k_s, those before it decay up to its end.
void DecayKeys(const DeltaChunkArgs& args, const DeltaGroup& group, float* keys) {
  alignas(64) float lanes[kLanes];
  for (size_t i = 0; i < args.key_dim; i += kLanes) {
    const size_t live = args.key_dim - i < kLanes ? args.key_dim - i : kLanes;
    float* rows = keys + i * kDeltaChunk;
    Vec decay = Set(1);
    for (size_t s = group.end; s-- > group.begin;) {
      Store(lanes, decay * LoadChannels(args, args.k, s, i));
      for (size_t lane = 0; lane < live; ++lane) rows[lane * kDeltaChunk + s] = lanes[lane];
      decay = NormalOrZero(decay * LoadChannels(args, args.decays, s, i));
    }
    Store(lanes, decay);
    for (size_t lane = 0; lane < live; ++lane)
      for (size_t s = 0; s < group.begin; s += kLanes) {
        float* row = rows + lane * kDeltaChunk + s;
        const size_t count = group.begin - s;
        Put(row, Dtype::kF32, 0, NormalOrZero(Set(lanes[lane]) * LoadUpTo(row, count, Set(0))),
            count);
      }
  }
}

// Products of the group's rows x with the keys before it.
void MultiplyKeysBefore(const DeltaChunkArgs& args, const DeltaGroup& group, const float* x,
                        const float* keys, float* scores) {
  constexpr int kColumns = kWide / 2;
  const RowGroups rows(group.end - group.begin, kTileRows);
  for (size_t part = 0; part < rows.count; ++part) {
    const size_t row = rows.Begin(part);
    for (size_t column = 0; column < group.begin; column += kColumns * kLanes)
      MultiplyTile<kColumns>({.x = x + row * args.key_dim,
                              .x_stride = args.key_dim,
                              .w = keys + column,
                              .w_stride = kDeltaChunk,
                              .steps = args.key_dim,
                              .y = scores + (group.begin + row) * kDeltaChunk + column,
                              .y_stride = kDeltaChunk,
                              .accumulate = false},
                             rows.Size(part));
  }
}

// One vector of channels of MultiplyPair: D(t, s) k_s from D(t - 1, s) k_s, and its products.
template <typename LoadFn, typename PutFn>
[[gnu::always_inline]] inline void AddPair(const float* decays, const float* k, const float* q,
                                           float* reach, LoadFn load, PutFn put, Vec& known,
                                           Vec& seen) {
  const Vec now = NormalOrZero(load(decays) * load(reach));
  put(reach, now);
  known = Fma(now, load(k), known);
  seen = Fma(now, load(q), seen);
}

// Those of tokens t and s < t. reach: [key_dim], D(t - 1, s) k_s, which becomes D(t, s) k_s.
void MultiplyPair(const DeltaChunkArgs& args, size_t t, size_t s, float* reach,
                  DeltaScratch& scratch) {
  const size_t n = args.key_dim, at = t * n;
  const float *decays = args.decays + at, *k = args.k + at, *q = args.q + at;
  Vec known = Set(0), seen = Set(0);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    AddPair(
        decays + i, k + i, q + i, reach + i, [](const float* p) { return Load(p); },
        [](float* p, Vec v) { Store(p, v); }, known, seen);
  if (i < n)
    AddPair(
        decays + i, k + i, q + i, reach + i,
        [n, i](const float* p) { return LoadFirst(p, n - i, Set(0)); },
        [n, i](float* p, Vec v) { StoreFirst(p, v, n - i); }, known, seen);
  scratch.known[t * kDeltaChunk + s] = SumLanes(known);
  scratch.seen[t * kDeltaChunk + s] = SumLanes(seen);
}

// Those of token s of the group with itself and with the group's later ones. reach: [key_dim].
void MultiplyPairs(const DeltaChunkArgs& args, const DeltaGroup& group, size_t s, float* reach,
                   DeltaScratch& scratch) {
  Vec seen = Set(0);
  for (size_t i = 0; i < args.key_dim; i += kLanes) {
    const Vec key = LoadChannels(args, args.k, s, i);
    Put(reach, Dtype::kF32, i, key, args.key_dim - i);
    seen = Fma(key, LoadChannels(args, args.q, s, i), seen);
  }
  scratch.seen[s * kDeltaChunk + s] = SumLanes(seen);
  for (size_t t = s + 1; t < group.end; ++t) MultiplyPair(args, t, s, reach, scratch);
}

// Everything that DeltaScratch has from keys, queries and decays.
void MultiplyDecayedKeys(const DeltaChunkArgs& args, DeltaScratch& scratch) {
  float *k = scratch.decayed, *q = k + kDeltaChunk * args.key_dim;
  float* group_k = q + kDeltaChunk * args.key_dim;
  float* group_q = group_k + kDeltaPairs * args.key_dim;
  for (size_t begin = 0; begin < args.tokens; begin += kGroupTokens) {
    const size_t rest = args.tokens - begin;
    const DeltaGroup group = {begin, begin + (rest < kGroupTokens ? rest : kGroupTokens)};
    if (begin > 0) {
      DecayRows(args, group, group_k, group_q, nullptr);
      MultiplyKeysBefore(args, group, group_k, scratch.keys, scratch.known);
      MultiplyKeysBefore(args, group, group_q, scratch.keys, scratch.seen);
    }
    for (size_t s = group.begin; s < group.end; ++s)
      MultiplyPairs(args, group, s, group_k, scratch);
    DecayKeys(args, group, scratch.keys);
  }
  for (size_t t = 0; t < args.tokens; ++t) {
    float *known = scratch.known + t * kDeltaChunk, *seen = scratch.seen + t * kDeltaChunk;
    known[t] = 0;
    for (size_t s = t + 1; s < kDeltaChunk; ++s) known[s] = seen[s] = 0;
    for (size_t s = 0; s < t; s += kLanes) Store(known + s, Set(-args.beta[t]) * Load(known + s));
    scratch.from_start[t] = scratch.to_end[t] = 1;  // the rows and keys are decayed themselves
  }
  DecayRows(args, {0, args.tokens}, k, q, group_k);
  scratch.k = k;
  scratch.q = q;
  scratch.held = group_k;
}

}  // namespace
}  // namespace pinion::kernels::impl
