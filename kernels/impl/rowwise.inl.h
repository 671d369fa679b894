#pragma once

// Functions over one row: norms, rotary embedding, sums, reductions over logits. The last vector of
// a row is masked: nothing beyond n is read or written, because the next row, or an unmapped page,
// may follow.

#include "kernels/impl/math.inl.h"

namespace pinion::kernels::impl {
namespace {

// Sum over i of f(x_i). Two running sums, so that loads rather than the latency of additions set
// the pace; the order depends on n alone, so a row always gives the same bits.
template <typename F>
float SumOver(const float* x, size_t n, F f) {
  Vec even = Set(0), odd = Set(0);
  size_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    even = even + f(Load(x + i));
    odd = odd + f(Load(x + i + kLanes));
  }
  for (; i < n; i += kLanes) {
    const Vec v = f(LoadUpTo(x + i, n - i, Set(0)));
    even = even + (n - i >= kLanes ? v : KeepFirst(v, n - i));
  }
  return SumLanes(even + odd);
}

void RmsNorm(void* dst, Dtype dst_type, const float* x, const float* weight, size_t n, float eps) {
  const float squares = SumOver(x, n, [](Vec v) { return v * v; });
  const Vec scale = Set(1 / __builtin_sqrtf(squares / static_cast<float>(n) + eps));
  for (size_t i = 0; i < n; i += kLanes) {
    const Vec normal = LoadUpTo(x + i, n - i, Set(0)) * scale;
    Put(dst, dst_type, i, normal * LoadUpTo(weight + i, n - i, Set(0)), n - i);
  }
}

void LayerNorm(void* dst, Dtype dst_type, const float* x, const float* weight, const float* bias,
               size_t n, float eps) {
  const float count = static_cast<float>(n);
  const Vec mean = Set(SumOver(x, n, [](Vec v) { return v; }) / count);
  const float squares = SumOver(x, n, [mean](Vec v) { return (v - mean) * (v - mean); });
  const Vec scale = Set(1 / __builtin_sqrtf(squares / count + eps));
  for (size_t i = 0; i < n; i += kLanes) {
    const Vec normal = (LoadUpTo(x + i, n - i, Set(0)) - mean) * scale;
    const Vec shift = bias ? LoadUpTo(bias + i, n - i, Set(0)) : Set(0);
    Put(dst, dst_type, i, Fma(normal, LoadUpTo(weight + i, n - i, Set(0)), shift), n - i);
  }
}

// log(1 + e^z) = max(z, 0) + log(1 + y) with y = e^-|z|, and log(1 + y) = 2 artanh(r) with
// r = y / (2 + y) <= 1/3, by its series to r^15 / 15: the remainder is below r^17 / 17 * 1.2, or
// 2e-9 of the sum. With the roundings the error is at most 12 u (4 u of them from y).
Vec Softplus(Vec z) {
  const Vec y = Exp(Set(0) - Max(Set(0) - z, z)), r = y / (Set(2) + y), squared = r * r;
  Vec p = Set(1.0f / 15);
  p = Fma(p, squared, Set(1.0f / 13));
  p = Fma(p, squared, Set(1.0f / 11));
  p = Fma(p, squared, Set(1.0f / 9));
  p = Fma(p, squared, Set(1.0f / 7));
  p = Fma(p, squared, Set(1.0f / 5));
  p = Fma(p, squared, Set(1.0f / 3));
  p = Fma(p, squared, Set(1));
  return Fma(r + r, p, Max(Set(0), z));  // in this order NaN survives
}

void SoftplusDecay(float* dst, const float* x, const float* bias, float rate, size_t n) {
  for (size_t i = 0; i < n; i += kLanes) {
    const Vec z = LoadUpTo(x + i, n - i, Set(0)) + LoadUpTo(bias + i, n - i, Set(0));
    Put(dst, Dtype::kF32, i, Exp(Set(rate) * Softplus(z)), n - i);
  }
}

void Rotary(float* x, const float* cos, const float* sin, size_t half) {
  for (size_t i = 0; i < half; i += kLanes) {
    const size_t live = half - i;
    const Vec a = LoadUpTo(x + i, live, Set(0)), b = LoadUpTo(x + half + i, live, Set(0));
    const Vec c = LoadUpTo(cos + i, live, Set(0)), s = LoadUpTo(sin + i, live, Set(0));
    Put(x, Dtype::kF32, i, a * c - b * s, live);
    Put(x, Dtype::kF32, half + i, b * c + a * s, live);
  }
}

// Rotates the pairs (x[2i], x[2i + 1]); cos and sin of a pair are copied to both of its lanes.
void RotaryPairs(float* x, const float* cos, const float* sin, size_t half) {
  for (size_t i = 0; i < 2 * half; i += kLanes) {
    const size_t live = 2 * half - i;
    const Vec v = LoadUpTo(x + i, live, Set(0));
    const Vec c = LoadUpTo(cos + i / 2, (live + 1) / 2, Set(0));
    const Vec s = LoadUpTo(sin + i / 2, (live + 1) / 2, Set(0));
    const Vec turned = AddSub(v * TwiceEach(c), SwapPairs(v) * TwiceEach(s));
    Put(x, Dtype::kF32, i, turned, live);
  }
}

void Add(float* y, const float* x, size_t n) {
  for (size_t i = 0; i < n; i += kLanes) {
    const Vec sum = LoadUpTo(y + i, n - i, Set(0)) + LoadUpTo(x + i, n - i, Set(0));
    Put(y, Dtype::kF32, i, sum, n - i);
  }
}

void AddScaled(float* y, const float* x, float factor, size_t n) {
  const Vec f = Set(factor);
  for (size_t i = 0; i < n; i += kLanes) {
    const Vec sum = Fma(f, LoadUpTo(x + i, n - i, Set(0)), LoadUpTo(y + i, n - i, Set(0)));
    Put(y, Dtype::kF32, i, sum, n - i);
  }
}

void Scale(float* x, float factor, size_t n) {
  const Vec f = Set(factor);
  for (size_t i = 0; i < n; i += kLanes)
    Put(x, Dtype::kF32, i, f * LoadUpTo(x + i, n - i, Set(0)), n - i);
}

void Weigh(float* x, const float* weight, float factor, size_t n) {
  const Vec f = Set(factor);
  for (size_t i = 0; i < n; i += kLanes) {
    const Vec scaled = f * LoadUpTo(x + i, n - i, Set(0)) * LoadUpTo(weight + i, n - i, Set(0));
    Put(x, Dtype::kF32, i, scaled, n - i);
  }
}

float SumSquares(const float* x, size_t n) {
  return SumOver(x, n, [](Vec v) { return v * v; });
}

void SoftCap(float* x, float cap, size_t n) {
  const Vec high = Set(cap), inverse = Set(1 / cap);
  for (size_t i = 0; i < n; i += kLanes)
    Put(x, Dtype::kF32, i, high * Tanh(inverse * LoadUpTo(x + i, n - i, Set(0))), n - i);
}

void StoreRow(void* dst, Dtype dst_type, const float* x, size_t n) {
  for (size_t i = 0; i < n; i += kLanes) {
    Put(dst, dst_type, i, LoadUpTo(x + i, n - i, Set(0)), n - i);
  }
}

// Maxima forget a NaN, so it is looked for beside them: one comparison finds it in two vectors.
float MaxOver(const float* x, size_t n) {
  Vec even = Set(-kInfinity), odd = even;
  unsigned nan = 0;
  size_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const Vec a = Load(x + i), b = Load(x + i + kLanes);
    even = Max(a, even);
    odd = Max(b, odd);
    nan |= NanLanes(a, b);
  }
  for (; i < n; i += kLanes) {
    const Vec a = LoadUpTo(x + i, n - i, Set(-kInfinity));
    even = Max(a, even);
    nan |= NanLanes(a, a);
  }
  return nan != 0 ? __builtin_nanf("") : MaxLane(Max(even, odd));
}

float LogSumExp(const float* x, size_t n) {
  const float max = MaxOver(x, n);
  if (__builtin_isinf(max)) return max;
  const float sum = SumOver(x, n, [max](Vec v) { return Exp(v - Set(max)); });
  return max + __builtin_logf(sum);
}

float ExpWeights(float* x, size_t n, float max, float scale, float least) {
  constexpr float kTiny = 0x1p-125f;  // above 2^-126, the weight computed for NaN and -infinity
  const Vec factor = Set(static_cast<float>(scale * kLog2E));
  const Vec limit = Set(least > kTiny ? least : kTiny);
  Vec sum = Set(0);
  for (size_t i = 0; i < n; i += kLanes) {
    const Vec above = LoadUpTo(x + i, n - i, Set(-kInfinity)) - Set(max);
    const Vec e = NormalPowerOfTwo(Max(above * factor, Set(-126)));  // NaN becomes -126
    const Vec weight = ZeroWhereBelow(e, e, limit);
    Put(x, Dtype::kF32, i, weight, n - i);
    sum = sum + weight;
  }
  return SumLanes(sum);
}

float SumAtLeast(const float* x, size_t n, float least) {
  return SumOver(x, n, [least](Vec v) { return ZeroWhereBelow(v, v, Set(least)); });
}

size_t ArgMax(const float* x, size_t n) {
  const Vec max = Set(MaxOver(x, n)), other = Set(__builtin_nanf(""));
  for (size_t i = 0; i < n; i += kLanes) {
    const unsigned equal = EqualLanes(LoadUpTo(x + i, n - i, other), max);
    if (equal != 0) return i + static_cast<size_t>(__builtin_ctz(equal));
  }
  return n;  // the largest is NaN, which equals nothing
}

}  // namespace
}  // namespace pinion::kernels::impl
