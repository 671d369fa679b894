#pragma once

// The vector of AVX2 with FMA and F16C: 8 floats. The same functions as vec_avx512.inl.h.

#include <immintrin.h>

#include "kernels/impl/half.inl.h"

namespace pinion::kernels::impl {
namespace {

using Vec = __m256;
constexpr size_t kLanes = 8;

// 16 registers: 6 rows x 2 vectors of sums, 2 of weights and one broadcast. With few rows there
// must be enough sums to hide an FMA's latency of 4 clocks at 2 per clock: 1 x 8, 2 x 4. (3 x 4
// does not fit the registers, and spilling costs more than the waits of 3 x 2: 47 % of peak instead
// of 75 %, Zen 4.)
constexpr int kTileRows = 6;
constexpr int kWide = 2;
constexpr int GemmColumns(int rows) { return rows == 1 ? 8 : rows <= 2 ? 4 : kWide; }

Vec Set(float value) { return _mm256_set1_ps(value); }
Vec Load(const float* p) { return _mm256_loadu_ps(p); }
void Store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
Vec Fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }

// x86's max and min return the second operand if one is NaN.
Vec Max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
Vec Min(Vec a, Vec b) { return _mm256_min_ps(a, b); }

float SumLanes(Vec v) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
float MaxLane(Vec v) {
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

// The first n lanes, n < 8; the others are not touched in memory and read as `other`.
__m256i FirstLanes(size_t n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
}
Vec LoadFirst(const float* p, size_t n, Vec other) {
  const __m256i mask = FirstLanes(n);
  return _mm256_blendv_ps(other, _mm256_maskload_ps(p, mask), _mm256_castsi256_ps(mask));
}
void StoreFirst(float* p, Vec v, size_t n) { _mm256_maskstore_ps(p, FirstLanes(n), v); }
Vec KeepFirst(Vec v, size_t n) { return _mm256_and_ps(v, _mm256_castsi256_ps(FirstLanes(n))); }

// Half a vector, for templates shared with AVX-512. Never called: head_dim is a multiple of 8.
inline Vec LoadHalf(const float* p) { return _mm256_zextps128_ps256(_mm_loadu_ps(p)); }
inline void StoreHalf(float* p, Vec v) { _mm_storeu_ps(p, _mm256_castps256_ps128(v)); }
inline Vec WidenF16Half(const void* p) {
  return _mm256_cvtph_ps(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
}

// Lanes as pairs (2i, 2i + 1): SwapPairs swaps them, AddSub subtracts in the first and adds in the
// second, TwiceEach gives every lane of the lower half twice.
Vec SwapPairs(Vec v) { return _mm256_permute_ps(v, 0xb1); }
Vec AddSub(Vec a, Vec b) { return _mm256_addsub_ps(a, b); }
Vec TwiceEach(Vec v) {
  return _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}

float FirstLane(Vec v) { return _mm256_cvtss_f32(v); }
// v, but 0 in the lanes with x < limit.
Vec ZeroWhereBelow(Vec v, Vec x, Vec limit) {
  return _mm256_andnot_ps(_mm256_cmp_ps(x, limit, _CMP_LT_OQ), v);
}

// One bit per lane, set if the lanes are equal.
unsigned EqualLanes(Vec a, Vec b) {
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)));
}
// The lanes in which either is NaN.
unsigned NanLanes(Vec a, Vec b) {
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)));
}

Vec RoundToInteger(Vec v) {
  return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// v * 2^n for integral n in [-252, 254], as two factors, because 2^n alone may not be a float.
Vec ScaleByPower(Vec v, Vec n) {
  const __m256i whole = _mm256_cvtps_epi32(n);
  const __m256i first = _mm256_srai_epi32(whole, 1), second = _mm256_sub_epi32(whole, first);
  const __m256i bias = _mm256_set1_epi32(127);
  const Vec a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(first, bias), 23));
  const Vec b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(second, bias), 23));
  return v * a * b;
}

// Round to nearest even, NaN stays NaN; exactly NarrowBf16.
__m128i ToBf16(Vec v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i last = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i half = _mm256_add_epi32(last, _mm256_set1_epi32(0x7fff));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i rounded = _mm256_blendv_epi8(_mm256_add_epi32(bits, half), quiet, is_nan);
  const __m256i words = _mm256_srli_epi32(rounded, 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}
void StoreBf16(Bf16* p, Vec v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), ToBf16(v)); }
void StoreBf16First(Bf16* p, Vec v, size_t n) {
  const __m128i halves = ToBf16(v);
  __builtin_memcpy(p, &halves, n * sizeof(Bf16));
}

void StoreF16(F16* p, Vec v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

// ---- Storage types as 32-bit lanes ------------------------------------------------------------

inline Vec WidenBf16(const Bf16* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
Vec WidenF16(const void* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
// Of the pair of bfloat16 in each lane, the one at the lower address and the one at the higher.
Vec EvenOfPairs(Vec pairs) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs), 16));
}
Vec OddOfPairs(Vec pairs) {
  return _mm256_castsi256_ps(_mm256_and_si256(_mm256_castps_si256(pairs),
                                              _mm256_set1_epi32(static_cast<int>(0xffff0000))));
}

// ---- Four signed bytes a lane: vec_avx512.inl.h says what these are -----------------------------

__m256i Ints(Vec v) { return _mm256_castps_si256(v); }
Vec Bits(__m256i v) { return _mm256_castsi256_ps(v); }

Vec EvenBytes(Vec v) { return Bits(_mm256_srai_epi16(_mm256_slli_epi16(Ints(v), 8), 8)); }
Vec OddBytes(Vec v) { return Bits(_mm256_srai_epi16(Ints(v), 8)); }
template <int shift>
Vec ByteShifted(Vec v, int byte, int mask) {
  const __m256i upper = _mm256_srai_epi32(_mm256_slli_epi32(Ints(v), 24 - 8 * byte), shift);
  return Bits(_mm256_and_si256(upper, _mm256_set1_epi32(mask)));
}
Vec DotPairs(Vec a, Vec b, Vec sum) {
  const Vec products = Bits(_mm256_madd_epi16(Ints(a), Ints(b)));
  asm("vpaddd %1, %0, %0" : "+x"(sum) : "x"(products));
  return sum;
}
Vec SpreadPair(const void* p) {
  int pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return Bits(_mm256_set1_epi32(pair));
}
Vec ToFloats(Vec v) { return _mm256_cvtepi32_ps(Ints(v)); }
Vec EvenFirst(Vec v) { return _mm256_permute_ps(v, 0xd8); }
void StoreInt16(int16_t* p, Vec v) {
  const __m256i words = _mm256_cvtps_epi32(v);
  const __m128i packed =
      _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
}
// Fours of lanes, `stride` floats apart; dst and stride are multiples of four floats.
void StoreFours(float* dst, size_t stride, Vec v) {
  _mm_store_ps(dst, _mm256_castps256_ps128(v));
  _mm_store_ps(dst + stride, _mm256_extractf128_ps(v, 1));
}

}  // namespace
}  // namespace pinion::kernels::impl
