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

// A tile of few rows, for which separating nibbles costs as much as multiplying them. So the high
// ones are not shifted down but count 16 times, have sums of their own, and these are divided at
// the end.
template <int kRows, int kColumns, int kPrefetch>
void NibbleTile(const TileArgs<OperandU4>& args) {
  Vec low[kRows][kColumns], high[kRows][kColumns];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) low[r][c] = high[r][c] = Set(0);
  }
  const int8_t* x = args.x;
  const std::byte *w = args.w[0], *prefetch = args.prefetch[0];
  for (size_t step = args.steps[0]; step > 0; --step) {
    PrefetchLines<kPrefetch, 3>(prefetch, args.prefetch_far);
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) {
      const Vec both = LoadWords<false>(w + c * kLanes * OperandU4::kBytes);
      const Vec below = LowNibbles(both), above = HighNibblesInPlace(both);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        low[r][c] = Dot(below, SpreadWord(x + r * args.x_stride), low[r][c]);
        high[r][c] = Dot(above, SpreadWord(x + r * args.x_stride + 4), high[r][c]);
      }
    }
    x += OperandU4::kStepK;
    w += args.w_stride;
    prefetch += args.prefetch_stride;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c)
      Store(args.y + r * args.y_stride + c * kLanes, AddInt(low[r][c], SixteenthOf(high[r][c])));
  }
}

// The tile for this number of rows and of lines to prefetch in each step.
template <typename Operand>
TileFn<Operand> IntTile(size_t rows, size_t lines, bool accumulate) {
  if constexpr (std::is_same_v<Operand, OperandU4>) {
    // With vectors of 256 bits there are too few registers for separate sums.
    if (rows == 1 && !accumulate && kLanes == 16) {
      if (lines == 0) return NibbleTile<1, GemmColumns(1), 0>;
      if (lines == 4) return NibbleTile<1, GemmColumns(1), 4>;
    }
  }
  return GemmTile<Operand>(rows, lines);
}

}  // namespace
}  // namespace pinion::kernels::impl
