#pragma once

// Codes times int8 activations without VPDPBUSD. With codes of 8 bits, the 16-bit sum of two
// products of bytes would overflow, so even and odd bytes are widened separately, those of the
// activations beforehand, once for all columns. With codes of 4 bits, 16 bits hold eight such sums.
// Include the ISA's integers first.

#include "kernels/impl/int_words.inl.h"

namespace pinion::kernels::impl {
namespace {

struct OperandU8 {
  using X = int16_t;  // every four in the order 0, 2, 1, 3
  static constexpr size_t kStepK = 4, kSubs = 2, kBytes = 4;
  template <bool half>
  static Vec Load(const std::byte* w, size_t sub) {
    const Vec codes = LoadWords<half>(w);
    return sub == 0 ? EvenCodes(codes) : OddCodes(codes);
  }
  static Vec Spread(const int16_t* x, size_t sub) { return SpreadPair(x + 2 * sub); }
  static Vec MultiplyAdd(Vec w, Vec x, Vec sum) { return DotPairs(w, x, sum); }
  // Converts kWidened activations to X.
  static constexpr size_t kWidened = 16;
  static void Widen(const int8_t* x, int16_t* dst) {
    const __m256i words =
        _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
    const __m256i even_first = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words, 0xd8), 0xd8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst), even_first);
  }
};

// For a single row, for which memory sets the pace: widening its activations before each chunk
// would stop the stream of codes for a tenth of the time. Here it is done in the tile, once for 8
// vectors of codes.
struct OperandU8OfOneRow : WordsOfU8 {
  static Vec MultiplyAdd(Vec w, Vec x, Vec sum) {
    return DotPairs(OddCodes(w), OddBytes(x), DotPairs(EvenCodes(w), EvenBytes(x), sum));
  }
};

struct OperandU4 {
  using X = int8_t;
  static constexpr size_t kStepK = 8, kSubs = 2, kBytes = 4;
  // Steps whose products fit 16 bits: 4 * 2 (kSubs) * 2 * 15 * 128 = 30720.
  static constexpr size_t kStepsInWords = 4;
  static Vec Codes(Vec nibbles) { return nibbles; }
};

struct OperandE2M1 {
  using X = int8_t;
  static constexpr size_t kStepK = 8, kSubs = 2, kBytes = 4;
  // Codes up to 24: 2 * 2 * 2 * 24 * 128 = 24576.
  static constexpr size_t kStepsInWords = 2;
  static Vec Codes(Vec nibbles) { return LookUpE2M1(nibbles); }
};

// y (int32) = or += x w. Sums of 16 bits take up the registers, so those of 32 are kept in y.
template <typename Operand, int kRows, int kColumns, int kPrefetch>
void NibbleTile(const TileArgs<Operand>& args) {
  const int8_t* x = args.x;
  const std::byte *w = args.w[0], *prefetch = args.prefetch[0];
  float* first = args.y;
  const size_t x_stride = args.x_stride, y_stride = args.y_stride, steps = args.steps[0];
  bool accumulate = args.accumulate;
  for (size_t step = 0; step < steps; step += Operand::kStepsInWords, accumulate = true) {
    const size_t left = steps - step;
    Vec words[kRows][kColumns];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int c = 0; c < kColumns; ++c) words[r][c] = Set(0);
    }
    for (size_t i = left < Operand::kStepsInWords ? left : Operand::kStepsInWords; i > 0; --i) {
      PrefetchLines<kPrefetch, 3>(prefetch, args.prefetch_far);
#pragma GCC unroll 2
      for (size_t sub = 0; sub < Operand::kSubs; ++sub) {
        Vec codes[kColumns];
#pragma GCC unroll 16
        for (int c = 0; c < kColumns; ++c) {
          const Vec nibbles = LoadWords<false>(w + c * kLanes * Operand::kBytes);
          codes[c] = Operand::Codes(sub == 0 ? LowNibbles(nibbles) : HighNibbles(nibbles));
        }
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          const Vec spread = SpreadWord(x + r * x_stride + 4 * sub);
#pragma GCC unroll 16
          for (int c = 0; c < kColumns; ++c) words[r][c] = AddPairs(codes[c], spread, words[r][c]);
        }
      }
      x += Operand::kStepK;
      w += args.w_stride;
      if constexpr (kPrefetch > 0) prefetch += args.prefetch_stride;
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int c = 0; c < kColumns; ++c) {
        float* y = first + r * y_stride + c * kLanes;
        const Vec sum = SumPairs(words[r][c]);
        Store(y, accumulate ? AddInt(Load(y), sum) : sum);
      }
    }
  }
}

template <int kRows, int kColumns, int kPrefetch>
constexpr TileFn<OperandU4> kTile<OperandU4, kRows, kColumns, kPrefetch> =
    NibbleTile<OperandU4, kRows, kColumns, kPrefetch>;
template <int kRows, int kColumns, int kPrefetch>
constexpr TileFn<OperandE2M1> kTile<OperandE2M1, kRows, kColumns, kPrefetch> =
    NibbleTile<OperandE2M1, kRows, kColumns, kPrefetch>;

// The tile for this number of rows and of lines to prefetch in each step.
template <typename Operand>
TileFn<Operand> IntTile(size_t rows, size_t lines, bool) {
  return GemmTile<Operand>(rows, lines);
}

}  // namespace
}  // namespace pinion::kernels::impl
