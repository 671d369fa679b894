#pragma once

// A vector that every x86-64 has, for tests that run the kernels' templates themselves: 4 floats.
// As much of vec_avx2.inl.h as attention needs.

#include <cmath>

#include "kernels/impl/half.inl.h"

namespace pinion::kernels::impl {
namespace {

using Vec = float __attribute__((vector_size(16)));
constexpr size_t kLanes = 4;
constexpr int kTileRows = 6, kWide = 2;

inline Vec Set(float value) { return Vec{value, value, value, value}; }
inline Vec Load(const float* p) { return Vec{p[0], p[1], p[2], p[3]}; }
inline void Store(float* p, Vec v) { __builtin_memcpy(p, &v, sizeof(v)); }
inline Vec Fma(Vec a, Vec b, Vec c) { return a * b + c; }

inline Vec Max(Vec a, Vec b) { return a > b ? a : b; }
inline Vec Min(Vec a, Vec b) { return a < b ? a : b; }
inline float SumLanes(Vec v) { return v[0] + v[1] + v[2] + v[3]; }
inline float MaxLane(Vec v) { return std::fmax(std::fmax(v[0], v[1]), std::fmax(v[2], v[3])); }
inline float FirstLane(Vec v) { return v[0]; }

inline Vec LoadFirst(const float* p, size_t n, Vec other) {
  __builtin_memcpy(&other, p, n * sizeof(float));
  return other;
}
inline void StoreFirst(float* p, Vec v, size_t n) { __builtin_memcpy(p, &v, n * sizeof(float)); }
inline Vec KeepFirst(Vec v, size_t n) {
  Vec kept = Set(0);
  __builtin_memcpy(&kept, &v, n * sizeof(float));
  return kept;
}
// Half a vector is never needed: dimensions are multiples of 8.
inline Vec LoadHalf(const float* p) { return LoadFirst(p, kLanes / 2, Set(0)); }
inline void StoreHalf(float* p, Vec v) { StoreFirst(p, v, kLanes / 2); }

inline Vec ZeroWhereBelow(Vec v, Vec x, Vec limit) { return x < limit ? Set(0) : v; }
inline Vec RoundToInteger(Vec v) {
  for (size_t i = 0; i < kLanes; ++i) v[i] = std::nearbyint(v[i]);
  return v;
}
inline Vec ScaleByPower(Vec v, Vec n) {
  for (size_t i = 0; i < kLanes; ++i)
    v[i] = std::ldexp(v[i], static_cast<int>(std::max(n[i], -300.0f)));
  return v;
}

inline void StoreBf16First(Bf16* p, Vec v, size_t n) {
  for (size_t i = 0; i < n; ++i) p[i] = NarrowBf16(v[i]);
}
inline void StoreBf16(Bf16* p, Vec v) { StoreBf16First(p, v, kLanes); }
inline Vec WidenF16(const void* p) {
  F16 from[kLanes];
  __builtin_memcpy(from, p, sizeof(from));
  return Vec{Widen(from[0]), Widen(from[1]), Widen(from[2]), Widen(from[3])};
}
inline Vec WidenF16Half(const void* p) { return WidenF16(p); }

inline Vec WidenBf16(const Bf16* p) {
  return Vec{Widen(p[0]), Widen(p[1]), Widen(p[2]), Widen(p[3])};
}

// Pairs of bfloat16 in lanes of 32 bits: the one at the lower address, the one at the higher.
inline Vec EvenOfPairs(Vec pairs) {
  for (size_t i = 0; i < kLanes; ++i) pairs[i] = AsFloat(AsBits(pairs[i]) << 16);
  return pairs;
}
inline Vec OddOfPairs(Vec pairs) {
  for (size_t i = 0; i < kLanes; ++i) pairs[i] = AsFloat(AsBits(pairs[i]) & 0xffff0000u);
  return pairs;
}

}  // namespace
}  // namespace pinion::kernels::impl
