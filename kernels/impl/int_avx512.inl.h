#pragma once

// Integers in the lanes of vec_avx512.inl.h's vectors: the same functions as int_avx2.inl.h.

#include "kernels/impl/e2m1.inl.h"
#include "kernels/impl/vec_avx512.inl.h"

namespace pinion::kernels::impl {
namespace {

// Leaves v as it is, but in a register and unlike any other value.
[[gnu::always_inline]] inline void KeepInRegister(Vec& v) { asm("" : "+v"(v)); }

Vec SpreadInt(int32_t value) { return Bits(_mm512_set1_epi32(value)); }
Vec SpreadWord(const int8_t* p) {
  int32_t word;
  __builtin_memcpy(&word, p, sizeof(word));
  return SpreadInt(word);
}
Vec AddInt(Vec a, Vec b) { return Bits(_mm512_add_epi32(Ints(a), Ints(b))); }
Vec SubInt(Vec a, Vec b) { return Bits(_mm512_sub_epi32(Ints(a), Ints(b))); }
Vec MulInt(Vec a, Vec b) { return Bits(_mm512_mullo_epi32(Ints(a), Ints(b))); }
Vec Magnitude(Vec v) { return _mm512_abs_ps(v); }
// How many magnitudes are above the limit.
size_t CountAbove(Vec v, float limit) {
  return static_cast<size_t>(
      __builtin_popcount(_mm512_cmp_ps_mask(Magnitude(v), _mm512_set1_ps(limit), _CMP_GT_OQ)));
}

// v: whole numbers within the range of int8.
void StoreBytes(int8_t* dst, Vec v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(dst), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
}

Vec LowNibbles(Vec v) { return Bits(_mm512_and_si512(Ints(v), _mm512_set1_epi8(15))); }
Vec HighNibblesInPlace(Vec v) {
  return Bits(_mm512_and_si512(Ints(v), _mm512_set1_epi8(static_cast<char>(0xf0))));
}
Vec SixteenthOf(Vec v) { return Bits(_mm512_srai_epi32(Ints(v), 4)); }
Vec HighNibbles(Vec v) { return LowNibbles(Bits(_mm512_srli_epi16(Ints(v), 4))); }

// The byte of kE2M1Bytes for each byte of v, a nibble.
Vec LookUpE2M1(Vec v) {
  const __m512i table = _mm512_load_si512(reinterpret_cast<const __m512i*>(kE2M1Bytes));
  return Bits(_mm512_shuffle_epi8(table, Ints(v)));
}
// 2^(b - 127) for kLanes bytes b; 0 for 0.
Vec WidenPowers(const void* p) {
  return Bits(
      _mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))), 23));
}

// Of kLanes bytes of e4m3, 2^-8 of their values, as float16 has them: a sign, a zero, seven bits
// and zeros.
Vec WidenE4m3(const void* p) {
  const __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  const __m256i kept = _mm256_set1_epi16(static_cast<int16_t>(0xbf80));
  return _mm512_cvtph_ps(_mm256_and_si256(_mm256_slli_epi16(words, 7), kept));
}

// Bytes 0 and 2, or 1 and 3, of every lane as two unsigned words.
Vec EvenCodes(Vec v) { return Bits(_mm512_and_si512(Ints(v), _mm512_set1_epi16(0xff))); }
Vec OddCodes(Vec v) { return Bits(_mm512_srli_epi16(Ints(v), 8)); }
// words + sums of two products each, of unsigned bytes of a by signed ones of b, as int16. In
// assembly for the same reason as DotPairs.
Vec AddPairs(Vec a, Vec b, Vec words) {
  const Vec products = Bits(_mm512_maddubs_epi16(Ints(a), Ints(b)));
  asm("vpaddw %1, %0, %0" : "+v"(words) : "v"(products));
  return words;
}
// The sum of both int16 of every lane.
Vec SumPairs(Vec words) { return Bits(_mm512_madd_epi16(Ints(words), _mm512_set1_epi16(1))); }

// The unsigned number in kBits bits of every lane, from bit kShift on.
template <int kShift, int kBits>
Vec FieldOf(Vec v) {
  return ToFloats(Bits(
      _mm512_and_si512(_mm512_srli_epi32(Ints(v), kShift), _mm512_set1_epi32((1 << kBits) - 1))));
}
// The unsigned number in those bits of every lane that are set in `mask` after a shift to the
// right.
Vec FieldAt(Vec v, int shift, int mask) {
  const __m512i shifted = _mm512_srl_epi32(Ints(v), _mm_cvtsi32_si128(shift));
  return ToFloats(Bits(_mm512_and_si512(shifted, _mm512_set1_epi32(mask))));
}
// Pairs of finite floats rounded to bfloat16, ties to even; `even` at the lower address.
__m512i RoundedToBf16(Vec v) {
  const __m512i last = _mm512_and_si512(_mm512_srli_epi32(Ints(v), 16), _mm512_set1_epi32(1));
  return _mm512_add_epi32(Ints(v), _mm512_add_epi32(last, _mm512_set1_epi32(0x7fff)));
}
Vec PairsOfBf16(Vec even, Vec odd) {
  const __m512i upper =
      _mm512_and_si512(RoundedToBf16(odd), _mm512_set1_epi32(static_cast<int>(0xffff0000)));
  return Bits(_mm512_or_si512(upper, _mm512_srli_epi32(RoundedToBf16(even), 16)));
}

}  // namespace
}  // namespace pinion::kernels::impl
