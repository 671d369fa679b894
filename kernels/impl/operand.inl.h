#pragma once

// The operands of a tile (tile.inl.h): one struct per storage type of the streamed operand
// (weights, keys, values). The streamed operand is stored in steps of kStepK along the reduced
// dimension, each a row of columns; kBytes is one column of one step. A step takes kSubs
// multiplications.
//
//   Load<half>(w, sub)  the weights of kLanes columns (half: of kLanes / 2) at w
//   Spread(x, sub)      the other operand's values for this step, broadcast to every lane
//   Put(x, v)           stores a vector of floats in the form that Spread reads
//
// If the other operand has two digits (kDigits = 2), the streamed one is read once for each:
//
//   Spread(x, digit)    0: the higher ones of this step
//   Raise(sum)          the sum times the base of the digits

#include "kernels/impl/half.inl.h"

namespace pinion::kernels::impl {
namespace {

// Whether the streamed operand is bytes with scales (operand_bytes.inl.h).
template <typename Operand>
constexpr bool kIsScaled = requires {
  Operand::kTop;
};

template <typename Operand>
struct KeyOperandOf {
  using Type = Operand;
};
template <typename Operand>
requires requires { typename Operand::Keys; }
struct KeyOperandOf<Operand> {
  using Type = typename Operand::Keys;
};
template <typename Operand>
using KeyOperand = typename KeyOperandOf<Operand>::Type;

template <bool half>
Vec LoadWords(const std::byte* w) {
  const float* p = reinterpret_cast<const float*>(w);
  if constexpr (half) {
    return LoadHalf(p);
  } else {
    return Load(p);
  }
}

template <typename Operand>
constexpr size_t kDigitsOf = 1;
template <typename Operand>
requires requires { Operand::kDigits; }
constexpr size_t kDigitsOf<Operand> = Operand::kDigits;

struct OperandF32 {
  using X = float;
  static constexpr Dtype kDtype = Dtype::kF32;
  static constexpr size_t kStepK = 1, kSubs = 1, kBytes = 4;

  template <bool half>
  static Vec Load(const std::byte* w, size_t sub) {
    return LoadWords<half>(w);
  }
  static Vec Spread(const float* x, size_t sub) { return Set(*x); }
  static Vec MultiplyAdd(Vec w, Vec x, Vec sum) { return Fma(w, x, sum); }
  static void Put(float* x, Vec v) { Store(x, v); }
};

struct OperandF16 {
  using X = float;
  static constexpr Dtype kDtype = Dtype::kF16;
  static constexpr size_t kStepK = 1, kSubs = 1, kBytes = 2;

  template <bool half>
  static Vec Load(const std::byte* w, size_t sub) {
    if constexpr (half) {
      return WidenF16Half(w);
    } else {
      return WidenF16(w);
    }
  }
  static Vec Spread(const float* x, size_t sub) { return Set(*x); }
  static Vec MultiplyAdd(Vec w, Vec x, Vec sum) { return Fma(w, x, sum); }
  static void Put(float* x, Vec v) { Store(x, v); }
};

// bfloat16 without instructions for it: multiplies the even element of each pair, then the odd one,
// in float32. The other operand is widened beforehand, once for all columns.
struct OperandBf16Widened {
  using X = float;
  static constexpr Dtype kDtype = Dtype::kBf16;
  static constexpr size_t kStepK = 2, kSubs = 2, kBytes = 4;

  template <bool half>
  static Vec Load(const std::byte* w, size_t sub) {
    const Vec pairs = LoadWords<half>(w);
    return sub == 0 ? EvenOfPairs(pairs) : OddOfPairs(pairs);
  }
  static Vec Spread(const float* x, size_t sub) { return Set(x[sub]); }
  static Vec MultiplyAdd(Vec w, Vec x, Vec sum) { return Fma(w, x, sum); }
  static void Put(float* x, Vec v) { Store(x, v); }
};

}  // namespace
}  // namespace pinion::kernels::impl
