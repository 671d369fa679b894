#pragma once

// How the KV cache rounds, from what types.h and kernels.h state and without the kernels: a second
// opinion that shares no code with them.

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/isa.h"
#include "kernels/types.h"

namespace pinion::kernels::testing {

// A binary floating-point format: significant bits behind the first, the exponent of its smallest
// normal number, its largest number.
struct FloatFormat {
  int mantissa, least_exponent;
  double largest;
};

inline FloatFormat FormatOf(KvDtype dtype) {
  switch (dtype) {
    case KvDtype::kF32:
      return {23, -126, 0x1.fffffep127};
    case KvDtype::kBf16:
      return {7, -126, 0x1.fep127};
    case KvDtype::kF16:
      return {10, -14, 65504};
    case KvDtype::kE5m2:
      return {2, -14, 57344};
    case KvDtype::kE4m3:
      return {3, -6, 448};
    case KvDtype::kI8:
      break;
  }
  return {0, 0, 127};
}

// To the nearest number of the format, ties to even; beyond the largest to infinity.
inline double RoundTo(const FloatFormat& format, double x) {
  if (x == 0) return x;
  const double step =
      std::ldexp(1.0, std::max(std::ilogb(x), format.least_exponent) - format.mantissa);
  const double nearest = std::nearbyint(x / step) * step;
  return std::abs(nearest) > format.largest ? std::copysign(INFINITY, x) : nearest;
}

// A token's keys or values of one head as the cache is to hold them.
struct CachedRow {
  std::vector<float> values;
  float scale = 1;
};

// One scale per head and token: the largest magnitude by the type's largest number (a quotient in
// float32), rounded up to bfloat16. Elements, divided by it in float32, go to the nearest number of
// the type, ties to even; the eight-bit floats have no subnormals, so numbers below the smallest
// normal one go to it or to zero. Number times scale has at most 15 significant bits: a float32
// holds it exactly.
inline CachedRow RoundAsCached(const float* x, size_t n, KvDtype dtype) {
  const FloatFormat format = FormatOf(dtype);
  CachedRow row;
  if (!IsScaled(dtype)) {
    for (size_t i = 0; i < n; ++i) row.values.push_back(static_cast<float>(RoundTo(format, x[i])));
    return row;
  }
  float largest = 0;
  for (size_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(x[i]));
  const float quotient = largest / static_cast<float>(format.largest);
  if (quotient > 0) {
    const double step = std::ldexp(1.0, std::ilogb(quotient) - 7);
    row.scale = static_cast<float>(std::ceil(quotient / step) * step);
  } else {
    row.scale = 0;
  }
  for (size_t i = 0; i < n; ++i) {
    double value = row.scale > 0 ? x[i] / row.scale : 0;
    value = std::clamp(value, -format.largest, format.largest);
    const double smallest = std::ldexp(1.0, format.least_exponent);
    if (dtype == KvDtype::kI8)
      value = std::nearbyint(value);
    else if (std::abs(value) >= smallest)
      value = RoundTo(format, value);
    else
      value = std::abs(value) >= smallest / 2 ? std::copysign(smallest, value) : 0;
    row.values.push_back(static_cast<float>(value * row.scale));
  }
  return row;
}

// Whether the path multiplies this cache's numbers as bfloat16, and rounds the other operand to it.
inline bool MultipliesAsBf16(Isa isa, KvDtype cache) {
  return isa >= Isa::kAvx512Bf16 &&
         (cache == KvDtype::kBf16 || cache == KvDtype::kE5m2 || cache == KvDtype::kE4m3);
}

// A row of queries as the path multiplies it by the cache (kernels/README.md): by int8 keys in 15
// bits of its largest magnitude, from avx512_bf16 on in 8; as bfloat16 by the numbers above, by
// eight-bit floats relative to its largest magnitude; else, and in the scalar path, as it is.
inline std::vector<float> RoundAsQuery(const float* q, size_t n, Isa isa, KvDtype cache) {
  std::vector<float> row(q, q + n);
  const bool as_integers = cache == KvDtype::kI8 && isa != Isa::kScalar;
  const bool as_bf16 = MultipliesAsBf16(isa, cache);
  if (!as_integers && !as_bf16) return row;
  float largest = 0;
  for (float x : row) largest = std::max(largest, std::abs(x));
  if (largest == 0) return row;
  const float integers = isa >= Isa::kAvx512Bf16 ? 127 : 16383;
  const float top = as_integers ? integers : IsScaled(cache) ? 0x1p60f : largest;
  for (float& x : row) {
    const double multiplied = x * (top / largest);
    const double rounded =
        as_integers ? std::nearbyint(multiplied) : RoundTo(FormatOf(KvDtype::kBf16), multiplied);
    x = static_cast<float>(rounded * largest / top);
  }
  return row;
}

}  // namespace pinion::kernels::testing
