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

// Calls use.operator()<f>() with the activation's function.
template <typename Use>
void WithActivation(Activation activation, Use use) {
  switch (activation) {
    case Activation::kSilu:
      return use.template operator()<Silu>();
    case Activation::kGeluTanh:
      return use.template operator()<GeluTanh>();
    case Activation::kGeluErf:
      return use.template operator()<GeluErf>();
    case Activation::kRelu:
      return use.template operator()<Relu>();
    case Activation::kSigmoid:
      return use.template operator()<Sigmoid>();
    case Activation::kRelu2:
      return use.template operator()<Relu2>();
  }
}

// One loop over all rows, so that f's constants are loaded once: rows of a block are four vectors.
template <Vec (*f)(Vec), bool kGated, bool kBias>
void EachOfRows(const ActivateRowsArgs& args) {
  const ActivateRowsArgs of = args;  // which dst cannot be an alias of
  const auto biased = [&](const float* x, const float* bias, size_t i) {
    const Vec v = LoadUpTo(x + i, of.n - i, Set(0));
    if constexpr (kBias) return v + LoadUpTo(bias + i, of.n - i, Set(0));
    return v;
  };
  for (size_t row = 0; row < of.rows; ++row) {
    const float* x = of.x + row * of.stride;
    const size_t to = row * of.dst_stride;
    for (size_t i = 0; i < of.n; i += kLanes) {
      Vec value = f(biased(x, of.bias, i));
      if constexpr (kGated) value = value * biased(of.up + row * of.stride, of.up_bias, i);
      Put(of.dst, of.dst_type, to + i, value, of.n - i);
    }
  }
}

void ActivateRows(const ActivateRowsArgs& args) {
  WithActivation(args.activation, [&]<Vec (*f)(Vec)>() {
    if (args.up != nullptr)
      return args.bias ? EachOfRows<f, true, true>(args) : EachOfRows<f, true, false>(args);
    return args.bias ? EachOfRows<f, false, true>(args) : EachOfRows<f, false, false>(args);
  });
}

void ActivateGated(void* dst, Dtype dst_type, Activation activation, const float* gate,
                   const float* up, size_t n) {
  ActivateRows({.activation = activation,
                .x = gate,
                .up = up,
                .rows = 1,
                .n = n,
                .stride = n,
                .dst = static_cast<std::byte*>(dst),
                .dst_type = dst_type,
                .dst_stride = n});
}

void Activate(void* dst, Dtype dst_type, Activation activation, const float* x, size_t n) {
  ActivateGated(dst, dst_type, activation, x, nullptr, n);
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
