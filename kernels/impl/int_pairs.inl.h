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

// sums += x w for codes of 4 bits. Sums of 16 bits take up the registers, so the compiler keeps
// those of 32 in memory.
template <typename Operand, int kRows, int kColumns, int kPrefetch>
[[gnu::always_inline]] inline void AddNibbles(const TileArgs<Operand>& args,
                                              Vec (&sums)[kRows][kColumns]) {
  const int8_t* x = args.x;
  const std::byte *w = args.w[0], *prefetch = kPrefetch > 0 ? args.prefetch[0] : nullptr;
  const size_t x_stride = args.x_stride, steps = args.steps[0];
  for (size_t step = 0; step < steps; step += Operand::kStepsInWords) {
    const size_t left = steps - step;
    Vec words[kRows][kColumns];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int c = 0; c < kColumns; ++c) words[r][c] = Set(0);
    }
    for (size_t i = left < Operand::kStepsInWords ? left : Operand::kStepsInWords; i > 0; --i) {
      PrefetchLines<kPrefetch, 3>(prefetch, args.prefetch_to);
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
      for (int c = 0; c < kColumns; ++c) sums[r][c] = AddInt(sums[r][c], SumPairs(words[r][c]));
    }
  }
}

// Whether a tile's sums are in registers while it multiplies.
template <typename Operand>
constexpr bool kInRegisters = !requires {
  Operand::kStepsInWords;
};

// sums += x w, in int32 lanes.
template <typename Operand, int kRows, int kColumns, int kPrefetch>
[[gnu::always_inline]] inline void AddIntProducts(const TileArgs<Operand>& args,
                                                  Vec (&sums)[kRows][kColumns]) {
  if constexpr (!kInRegisters<Operand>) {
    AddNibbles<Operand, kRows, kColumns, kPrefetch>(args, sums);
  } else {
    AddProducts<Operand, kRows, kColumns, kPrefetch, false, 3>(args, 0, sums);
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
