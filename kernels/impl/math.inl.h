#pragma once

// Elementary functions over Vec, and the loads and stores of row-wise functions.

#include <cstddef>

#include "kernels/kernels.h"

namespace pinion::kernels::impl {
namespace {

constexpr float kInfinity = __builtin_inff();

// e^x. x = n ln2 + r with |r| <= ln2 / 2, e^r by its Taylor series to r^7 / 7!: the remainder is
// below r^8 / 8! * 1.1 = 5.8e-9, a tenth of an ulp. ln2 is split in two so that n * kHigh is exact
// (kHigh has 12 bits, n has 8). With the roundings of Horner's scheme the error is at most 2 ulp
// (tested). 0 below -87.33 (the result would be subnormal; also for -infinity); 3.4e38 above 88.72.
// NaN stays NaN.
Vec Exp(Vec x) {
  constexpr float kPerLn2 = 1.44269504f, kLowest = -87.33f, kHighest = 88.72f;
  constexpr float kHigh = 0.693359375f, kLow = -2.12194440e-4f;
  const Vec clamped = Min(Set(kHighest), Max(Set(kLowest), x));  // in this order NaN survives
  const Vec n = RoundToInteger(clamped * Set(kPerLn2));
  const Vec r = Fma(n, Set(-kLow), Fma(n, Set(-kHigh), clamped));
  Vec p = Set(1.0f / 5040);
  p = Fma(p, r, Set(1.0f / 720));
  p = Fma(p, r, Set(1.0f / 120));
  p = Fma(p, r, Set(1.0f / 24));
  p = Fma(p, r, Set(1.0f / 6));
  p = Fma(p, r, Set(0.5f));
  p = Fma(p, r, Set(1.0f));
  p = Fma(p, r, Set(1.0f));
  return ZeroWhereBelow(ScaleByPower(p, n), x, Set(kLowest));
}

// 2^t for -126 <= t <= 127 (NaN stays NaN), in half of Exp's time: softmax weights need not be
// correct to the last place. t = n + r with |r| <= 1/2; 2^r by the polynomial of degree 5 that is 1
// at 0 and has the least error elsewhere (1.6 u; 2.7 u with the roundings of Horner's scheme).
Vec NormalPowerOfTwo(Vec t) {
  const Vec n = RoundToInteger(t), r = t - n;
  Vec p = Set(0.00132647241f);
  p = Fma(p, r, Set(0.00967151287f));
  p = Fma(p, r, Set(0.0555073375f));
  p = Fma(p, r, Set(0.240222421f));
  p = Fma(p, r, Set(0.693146978f));
  p = Fma(p, r, Set(1));
  return ScaleByPower(p, n);
}

// The same for all t <= 127: 0 below -126.
Vec PowerOfTwo(Vec t) { return ZeroWhereBelow(NormalPowerOfTwo(t), t, Set(-126)); }
constexpr double kLog2E = 1.4426950408889634;  // e^x = 2^(x kLog2E)

// 1 - 2 / (e^2x + 1). The error is absolute: 4 u, near 0 as well as near 1. e^2x ends at 0 and
// 3.4e38, so the limits -1 and 1 are exact; NaN stays NaN.
inline Vec Tanh(Vec x) { return Set(1) - Set(2) / (Exp(x + x) + Set(1)); }

float Exp(float x) { return FirstLane(Exp(Set(x))); }

Vec LoadUpTo(const float* p, size_t n, Vec other) {
  return n >= kLanes ? Load(p) : LoadFirst(p, n, other);
}

// Stores the first min(n, kLanes) lanes at element i of dst. Always inlined: a call in the loop
// over a row costs as much as the row's arithmetic.
[[gnu::always_inline]] inline void Put(void* dst, Dtype dst_type, size_t i, Vec v, size_t n) {
  if (dst_type == Dtype::kBf16) {
    Bf16* p = static_cast<Bf16*>(dst) + i;
    n >= kLanes ? StoreBf16(p, v) : StoreBf16First(p, v, n);
  } else {
    float* p = static_cast<float*>(dst) + i;
    n >= kLanes ? Store(p, v) : StoreFirst(p, v, n);
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
