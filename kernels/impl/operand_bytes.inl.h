#pragma once

// Operands of attention over a KV cache of bytes. They compute w x for bytes w without their
// scales, with an x that was multiplied by kTop / (its largest magnitude). So every row of x has a
// factor, largest / kTop * kUnit, by which its results are multiplied (kIsScaled). In addition to
// operand.inl.h's members:
//
//   kTop        the largest magnitude of a row of x after scaling
//   kUnit       the true value of a byte over its value in MultiplyAdd
//   Floats(sum) the sum as floats
//   Start(x, n) the start of the sum of a row of n elements; 0 if missing
//   Keys        the operand for the product with keys; the same as for values if missing

#include "kernels/impl/operand.inl.h"

namespace pinion::kernels::impl {
namespace {

// Signed bytes by 15 bits, exact in int32: sums are at most kMaxKeyDim * 127 * 16383 = 2^30.2.
// Fewer bits would drop the many small weights beside a large one.
struct OperandI8 {
  using X = int16_t;
  static constexpr size_t kStepK = 4, kSubs = 2, kBytes = 4;
  static constexpr float kTop = 16383, kUnit = 1;

  template <bool half>
  static Vec Load(const std::byte* w, size_t sub) {
    const Vec bytes = LoadWords<half>(w);
    return sub == 0 ? EvenBytes(bytes) : OddBytes(bytes);
  }
  static Vec Spread(const int16_t* x, size_t sub) { return SpreadPair(x + 2 * sub); }
  static Vec MultiplyAdd(Vec w, Vec x, Vec sum) { return DotPairs(w, x, sum); }
  static Vec Floats(Vec sum) { return ToFloats(sum); }
  static void Put(int16_t* x, Vec v) { StoreInt16(x, EvenFirst(v)); }
};

// An eight-bit float becomes a larger one by an arithmetic shift that aligns its exponent with the
// larger one's. The shift copies the sign to the left, and kMask clears the copies except the sign
// itself. The exponent keeps its bias, so numbers are 2^(127 - bias) too small (kUnit), and kTop is
// large so that products do not underflow.
struct BitsE5m2 {
  static constexpr int kShift = 3, kMask = static_cast<int>(0x8fe08fe0);
  static constexpr float kUnit = 0x1p112f;
};
struct BitsE4m3 {
  static constexpr int kShift = 4, kMask = static_cast<int>(0x87f087f0);
  static constexpr float kUnit = 0x1p120f;
};
constexpr float kFloatTop = 0x1p60f;

template <typename Format>
struct OperandF8Widened {
  using X = float;
  static constexpr size_t kStepK = 4, kSubs = 4, kBytes = 4;
  static constexpr float kTop = kFloatTop, kUnit = Format::kUnit;

  template <bool half>
  static Vec Load(const std::byte* w, size_t sub) {
    constexpr int kUpper = Format::kMask & static_cast<int>(0xffff0000);
    return ByteShifted<Format::kShift>(LoadWords<half>(w), static_cast<int>(sub), kUpper);
  }
  static Vec Spread(const float* x, size_t sub) { return Set(x[sub]); }
  static Vec MultiplyAdd(Vec w, Vec x, Vec sum) { return Fma(w, x, sum); }
  static Vec Floats(Vec sum) { return sum; }
  static void Put(float* x, Vec v) { Store(x, v); }
};

// The operands of CPUs without instructions for pairs of bfloat16 or fours of bytes.
struct WidenedBytes {
  using I8 = OperandI8;
  using E5m2 = OperandF8Widened<BitsE5m2>;
  using E4m3 = OperandF8Widened<BitsE4m3>;
};

}  // namespace
}  // namespace pinion::kernels::impl
