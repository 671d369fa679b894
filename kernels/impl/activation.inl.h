#pragma once

// The MLP's activation functions, plain and gated.

#include "kernels/impl/math.inl.h"

namespace pinion::kernels::impl {
namespace {

Vec Sigmoid(Vec x) { return Set(1) / (Set(1) + Exp(Set(0) - x)); }

Vec Silu(Vec x) { return x / (Set(1) + Exp(Set(0) - x)); }

// 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3)
Vec GeluTanh(Vec x) {
  constexpr float kTwice = 2 * 0.7978845608f;  // 2 sqrt(2/pi)
  const Vec u = Set(kTwice) * x * Fma(Set(0.044715f) * x, x, Set(1));
  return x * Sigmoid(u);
}

// 0.5 x (1 + erf(x / sqrt(2))), erf by Abramowitz & Stegun 7.1.26: within 1.5e-7 everywhere.
// Inlined, so that the loop over a row keeps its constants in registers.
[[gnu::always_inline]] inline Vec GeluErf(Vec x) {
  const Vec z = Max(x, Set(0) - x) * Set(0.7071067812f);
  const Vec t = Set(1) / Fma(Set(0.3275911f), z, Set(1));
  Vec p = Set(1.061405429f);
  p = Fma(p, t, Set(-1.453152027f));
  p = Fma(p, t, Set(1.421413741f));
  p = Fma(p, t, Set(-0.284496736f));
  p = Fma(p, t, Set(0.254829592f));
  const Vec upper = p * t * PowerOfTwo(z * z * Set(static_cast<float>(-kLog2E))) *
                    Set(0.5f);  // upper tail of the normal law
  const Vec positive = Max(x, Set(0));
  return positive - Max(x, Set(0) - x) * upper;
}

Vec Relu(Vec x) { return Max(x, Set(0)); }

Vec Relu2(Vec x) { return Relu(x) * Relu(x); }

template <Vec (*f)(Vec)>
void EachOf(void* dst, Dtype dst_type, const float* x, size_t n) {
  for (size_t i = 0; i < n; i += kLanes)
    Put(dst, dst_type, i, f(LoadUpTo(x + i, n - i, Set(0))), n - i);
}

template <Vec (*f)(Vec)>
void EachGated(void* dst, Dtype dst_type, const float* gate, const float* up, size_t n) {
  for (size_t i = 0; i < n; i += kLanes) {
    const Vec g = LoadUpTo(gate + i, n - i, Set(0)), u = LoadUpTo(up + i, n - i, Set(0));
    Put(dst, dst_type, i, f(g) * u, n - i);
  }
}

void Activate(void* dst, Dtype dst_type, Activation activation, const float* x, size_t n) {
  switch (activation) {
    case Activation::kSilu:
      return EachOf<Silu>(dst, dst_type, x, n);
    case Activation::kGeluTanh:
      return EachOf<GeluTanh>(dst, dst_type, x, n);
    case Activation::kGeluErf:
      return EachOf<GeluErf>(dst, dst_type, x, n);
    case Activation::kRelu:
      return EachOf<Relu>(dst, dst_type, x, n);
    case Activation::kSigmoid:
      return EachOf<Sigmoid>(dst, dst_type, x, n);
    case Activation::kRelu2:
      return EachOf<Relu2>(dst, dst_type, x, n);
  }
}

void ActivateGated(void* dst, Dtype dst_type, Activation activation, const float* gate,
                   const float* up, size_t n) {
  switch (activation) {
    case Activation::kSilu:
      return EachGated<Silu>(dst, dst_type, gate, up, n);
    case Activation::kGeluTanh:
      return EachGated<GeluTanh>(dst, dst_type, gate, up, n);
    case Activation::kGeluErf:
      return EachGated<GeluErf>(dst, dst_type, gate, up, n);
    case Activation::kRelu:
      return EachGated<Relu>(dst, dst_type, gate, up, n);
    case Activation::kSigmoid:
      return EachGated<Sigmoid>(dst, dst_type, gate, up, n);
    case Activation::kRelu2:
      return EachGated<Relu2>(dst, dst_type, gate, up, n);
  }
}

void ClampedSwiglu(void* dst, Dtype dst_type, const float* gate, const float* up, size_t n,
                   float alpha, float limit) {
  const Vec most = Set(limit), least = Set(-limit);
  for (size_t i = 0; i < n; i += kLanes) {
    const Vec g = Min(most, LoadUpTo(gate + i, n - i, Set(0)));
    const Vec u = Min(most, Max(least, LoadUpTo(up + i, n - i, Set(0))));
    Put(dst, dst_type, i, g * Sigmoid(Set(alpha) * g) * (u + Set(1)), n - i);
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
