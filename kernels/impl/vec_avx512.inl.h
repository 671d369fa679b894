#pragma once

// The vector of AVX-512: 16 floats. vec_avx2.inl.h has the same functions, and the algorithms in
// the other .inl.h files use only these names. Everything here is private to the file that includes
// it.

#include <immintrin.h>

#include "kernels/impl/half.inl.h"

namespace pinion::kernels::impl {
namespace {

using Vec = __m512;  // GCC gives it + - * /
constexpr size_t kLanes = 16;

// Columns (in vectors) of a register tile of `rows` rows. 32 registers hold 6 rows x 4 vectors of
// sums, 4 vectors of weights and one broadcast.
constexpr int kTileRows = 6;
constexpr int kWide = 4;
constexpr int GemmColumns(int rows) { return kWide; }

Vec Set(float value) { return _mm512_set1_ps(value); }
Vec Load(const float* p) { return _mm512_loadu_ps(p); }
void Store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
Vec Fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }

// x86's max and min return the second operand if one is NaN.
Vec Max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
Vec Min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
float SumLanes(Vec v) { return _mm512_reduce_add_ps(v); }
float MaxLane(Vec v) { return _mm512_reduce_max_ps(v); }

// The first n lanes, n < 16; the others are not touched in memory and read as `other`.
__mmask16 FirstLanes(size_t n) { return static_cast<__mmask16>((1u << n) - 1); }
Vec LoadFirst(const float* p, size_t n, Vec other) {
  return _mm512_mask_loadu_ps(other, FirstLanes(n), p);
}
void StoreFirst(float* p, Vec v, size_t n) { _mm512_mask_storeu_ps(p, FirstLanes(n), v); }
Vec KeepFirst(Vec v, size_t n) { return _mm512_maskz_mov_ps(FirstLanes(n), v); }

// Half a vector, because head_dim is only a multiple of 8. The upper half reads as zero.
Vec LoadHalf(const float* p) { return _mm512_zextps256_ps512(_mm256_loadu_ps(p)); }
void StoreHalf(float* p, Vec v) { _mm256_storeu_ps(p, _mm512_castps512_ps256(v)); }

// Lanes as pairs (2i, 2i + 1): SwapPairs swaps them, AddSub subtracts in the first and adds in the
// second, TwiceEach gives every lane of the lower half twice.
Vec SwapPairs(Vec v) { return _mm512_permute_ps(v, 0xb1); }
Vec AddSub(Vec a, Vec b) { return _mm512_mask_sub_ps(a + b, 0x5555, a, b); }
Vec TwiceEach(Vec v) {
  const __m512i lanes = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return _mm512_permutexvar_ps(lanes, v);
}

float FirstLane(Vec v) { return _mm512_cvtss_f32(v); }
// v, but 0 in the lanes with x < limit.
Vec ZeroWhereBelow(Vec v, Vec x, Vec limit) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), v);
}

// One bit per lane, set if the lanes are equal.
unsigned EqualLanes(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
// The lanes in which either is NaN.
unsigned NanLanes(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q); }

Vec RoundToInteger(Vec v) {
  return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// v * 2^n for integral n.
Vec ScaleByPower(Vec v, Vec n) { return _mm512_scalef_ps(v, n); }

// Round to nearest even, NaN stays NaN: the same bits as NarrowBf16. VCVTNEPS2BF16 would flush
// subnormals.
__m256i ToBf16(Vec v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i last = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i half = _mm512_add_epi32(last, _mm512_set1_epi32(0x7fff));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  const __m512i rounded = _mm512_mask_mov_epi32(_mm512_add_epi32(bits, half), is_nan, quiet);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}
void StoreBf16(Bf16* p, Vec v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), ToBf16(v)); }
void StoreBf16First(Bf16* p, Vec v, size_t n) {
  _mm256_mask_storeu_epi16(p, FirstLanes(n), ToBf16(v));
}

void StoreF16(F16* p, Vec v) {
  const __m256i halves = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), halves);
}

// ---- Storage types as 32-bit lanes ------------------------------------------------------------

inline Vec WidenBf16(const Bf16* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
Vec WidenF16(const void* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
Vec WidenF16Half(const void* p) {
  return _mm512_cvtph_ps(_mm256_zextsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(p))));
}
// Of the pair of bfloat16 in each lane, the one at the lower address and the one at the higher.
Vec EvenOfPairs(Vec pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs), 16));
}
Vec OddOfPairs(Vec pairs) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(pairs),
                                              _mm512_set1_epi32(static_cast<int>(0xffff0000))));
}

// ---- Four signed bytes a lane -----------------------------------------------------------------

__m512i Ints(Vec v) { return _mm512_castps_si512(v); }
Vec Bits(__m512i v) { return _mm512_castsi512_ps(v); }

// Bytes 0 and 2, or 1 and 3, of every lane as two int16.
Vec EvenBytes(Vec v) { return Bits(_mm512_srai_epi16(_mm512_slli_epi16(Ints(v), 8), 8)); }
Vec OddBytes(Vec v) { return Bits(_mm512_srai_epi16(Ints(v), 8)); }
// The same bytes as the upper halves of two int16, shifted right arithmetically by `shift` and
// masked. Both int16 of `mask` are equal.
template <int shift>
Vec EvenBytesShifted(Vec v, int mask) {
  const __m512i upper = _mm512_srai_epi16(_mm512_slli_epi16(Ints(v), 8), shift);
  return Bits(_mm512_and_si512(upper, _mm512_set1_epi32(mask)));
}
template <int shift>
Vec OddBytesShifted(Vec v, int mask) {
  return Bits(_mm512_and_si512(_mm512_srai_epi16(Ints(v), shift), _mm512_set1_epi32(mask)));
}
// The same for byte `byte`, as the uppermost of an int32.
template <int shift>
Vec ByteShifted(Vec v, int byte, int mask) {
  const __m512i upper = _mm512_srai_epi32(_mm512_slli_epi32(Ints(v), 24 - 8 * byte), shift);
  return Bits(_mm512_and_si512(upper, _mm512_set1_epi32(mask)));
}
// sum + both products of the pairs of int16 in each lane, as int32. The addition is in assembly
// because GCC would add several products first, and lack registers for those that wait.
Vec DotPairs(Vec a, Vec b, Vec sum) {
  const Vec products = Bits(_mm512_madd_epi16(Ints(a), Ints(b)));
  asm("vpaddd %1, %0, %0" : "+v"(sum) : "v"(products));
  return sum;
}
Vec SpreadPair(const void* p) {
  int pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return Bits(_mm512_set1_epi32(pair));
}
Vec ToFloats(Vec v) { return _mm512_cvtepi32_ps(Ints(v)); }
// Every four values in the order 0, 2, 1, 3, to be multiplied by EvenBytes and OddBytes.
Vec EvenFirst(Vec v) { return _mm512_permute_ps(v, 0xd8); }
void StoreInt16(int16_t* p, Vec v) {
  const __m256i words = _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(v));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), words);
}
// Fours of lanes, `stride` floats apart; dst and stride are multiples of four floats.
void StoreFours(float* dst, size_t stride, Vec v) {
  _mm_store_ps(dst, _mm512_castps512_ps128(v));
  _mm_store_ps(dst + stride, _mm512_extractf32x4_ps(v, 1));
  _mm_store_ps(dst + 2 * stride, _mm512_extractf32x4_ps(v, 2));
  _mm_store_ps(dst + 3 * stride, _mm512_extractf32x4_ps(v, 3));
}

}  // namespace
}  // namespace pinion::kernels::impl
