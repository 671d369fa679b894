#pragma once

// Codes times int8 activations with VPDPBUSD, which adds four products at once. Include the ISA's
// integers and its Dot first:
//   Dot(Vec w, Vec x, Vec sum)   sum + unsigned bytes of w times signed bytes of x, in int32 lanes

#include "kernels/impl/int_words.inl.h"

namespace pinion::kernels::impl {
namespace {

struct OperandU8 : WordsOfU8 {
  static Vec MultiplyAdd(Vec w, Vec x, Vec sum) { return Dot(w, x, sum); }
};

using OperandU8OfOneRow = OperandU8;

struct OperandU4 {
  using X = int8_t;
  static constexpr size_t kStepK = 8, kSubs = 2, kBytes = 4;
  template <bool half>
  static Vec Load(const std::byte* w, size_t sub) {
    const Vec nibbles = LoadWords<half>(w);
    return sub == 0 ? LowNibbles(nibbles) : HighNibbles(nibbles);
  }
  static Vec Spread(const int8_t* x, size_t sub) { return SpreadWord(x + 4 * sub); }
  static Vec MultiplyAdd(Vec w, Vec x, Vec sum) { return Dot(w, x, sum); }
};

struct OperandE2M1 : OperandU4 {
  template <bool half>
  static Vec Load(const std::byte* w, size_t sub) {
    return LookUpE2M1(OperandU4::Load<half>(w, sub));
  }
};

// For one row, separating nibbles costs as much as multiplying them. So the high ones are not
// shifted down but count 16 times, have sums of their own, and these are divided at the end.
template <int kColumns, int kPrefetch>
[[gnu::always_inline]] inline void AddNibbles(const TileArgs<OperandU4>& args,
                                              Vec (&sums)[kColumns]) {
  Vec high[kColumns];
#pragma GCC unroll 16
  for (int c = 0; c < kColumns; ++c) high[c] = Set(0);
  const int8_t* x = args.x;
  const std::byte* w = args.w[0];
  const std::byte* prefetch = args.prefetch[0];
  for (size_t step = args.steps[0]; step > 0; --step) {
    PrefetchLines<kPrefetch, 3>(prefetch, args.prefetch_to);
    const Vec first = SpreadWord(x), second = SpreadWord(x + 4);
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) {
      const Vec both = LoadWords<false>(w + c * kLanes * OperandU4::kBytes);
      sums[c] = Dot(LowNibbles(both), first, sums[c]);
      high[c] = Dot(HighNibblesInPlace(both), second, high[c]);
    }
    x += OperandU4::kStepK;
    w += args.w_stride;
    if constexpr (kPrefetch > 0) prefetch += args.prefetch_stride;
  }
#pragma GCC unroll 16
  for (int c = 0; c < kColumns; ++c) sums[c] = AddInt(sums[c], SixteenthOf(high[c]));
}

// Whether a tile's sums are in registers while it multiplies.
template <typename Operand>
constexpr bool kInRegisters = true;

// sums += x w, in int32 lanes.
template <typename Operand, int kRows, int kColumns, int kPrefetch>
[[gnu::always_inline]] inline void AddIntProducts(const TileArgs<Operand>& args,
                                                  Vec (&sums)[kRows][kColumns]) {
  // With vectors of 256 bits there are too few registers for separate sums.
  if constexpr (std::is_same_v<Operand, OperandU4> && kRows == 1 && kLanes == 16) {
    AddNibbles<kColumns, kPrefetch>(args, sums[0]);
  } else {
    AddProducts<Operand, kRows, kColumns, kPrefetch, false, 3>(args, 0, sums);
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
