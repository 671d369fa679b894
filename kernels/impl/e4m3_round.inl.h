#pragma once

// Rounding of activations to e4m3 (E4m3Table::round). Plain loops over neighbouring elements, which
// the compiler turns into vectors.

#include "kernels/e4m3.h"
#include "kernels/impl/magnitude.inl.h"

namespace pinion::kernels::impl {
namespace {

// The nearest value of e4m3, of two equally near ones the even one. Requires |value| <= 448; NaN
// stays NaN. At an exponent e, values are 2^(e - 3) apart, and as far as at the smallest exponent,
// -6, below it. These are the steps of floats at 2^(e + 20), so adding 1.5 times that much rounds
// to them, and stays at this exponent whatever the value's sign.
float NearestE4m3(float value) {
  constexpr uint32_t kExponents = 0x7f800000, kSmallest = (127 - 6) << 23, kUp = 20 << 23;
  const uint32_t exponent = AsBits(value) & kExponents;
  const uint32_t from = exponent > kSmallest ? exponent : kSmallest;
  const float shift = AsFloat((from + kUp) | 0x400000);
  return (value + shift) - shift;
}

// Divides instead of multiplying by the inverse, as the schemes do: quotients that lie between two
// values would fall to either side. A scale of 0 is that of zeros, and of values so small that they
// become zeros.
template <typename T>
void RoundRun(const T* x, size_t n, float scale, T* dst) {
  const float divisor = scale == 0 ? 1 : scale;
#pragma GCC ivdep  // dst may be x
  for (size_t i = 0; i < n; ++i) {
    const float value = Widen(x[i]) / divisor;
    const float below = value > kLargestE4m3 ? kLargestE4m3 : value;  // keeps NaN
    Narrow(NearestE4m3(below < -kLargestE4m3 ? -kLargestE4m3 : below) * scale, dst[i]);
  }
}

// The smallest power of two from a scale on. A scale that is not finite stays so.
inline float PowerFrom(float scale) {
  constexpr uint32_t kMantissa = 0x7fffff, kInfinity = 0x7f800000;
  const uint32_t bits = AsBits(scale);
  return bits >= kInfinity ? scale : AsFloat((bits + kMantissa) & ~kMantissa);
}

template <typename T>
void RoundRow(const E4m3RoundArgs& args) {
  const auto* x = static_cast<const T*>(args.x);
  auto* dst = static_cast<T*>(args.dst);
  const E4m3Rounding& rounding = args.rounding;
  if (rounding.scale > 0) return RoundRun(x, args.k, rounding.scale, dst);
  const size_t group = rounding.group > 0 ? rounding.group : rounding.first + args.k;
  for (size_t i = 0; i < args.k;) {
    const size_t rest = group - (rounding.first + i) % group;
    const size_t n = rest < args.k - i ? rest : args.k - i;
    const float scale = LargestMagnitude(x + i, n) / kLargestE4m3;
    RoundRun(x + i, n, rounding.powers_of_two ? PowerFrom(scale) : scale, dst + i);
    i += n;
  }
}

void Round(const E4m3RoundArgs& args) {
  args.type == Dtype::kF32 ? RoundRow<float>(args) : RoundRow<Bf16>(args);
}

}  // namespace
}  // namespace pinion::kernels::impl
