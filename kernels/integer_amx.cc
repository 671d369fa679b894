// AMX-INT8: tiles for many rows; for few, AVX-512 with VNNI, which streams codes as fast.

#include "kernels/impl/int_avx512.inl.h"

namespace pinion::kernels::impl {
namespace {

Vec Dot(Vec w, Vec x, Vec sum) { return Bits(_mm512_dpbusd_epi32(Ints(sum), Ints(w), Ints(x))); }

}  // namespace
}  // namespace pinion::kernels::impl

#include "kernels/impl/int_fours.inl.h"
#include "kernels/impl/integer.inl.h"
//
#include "kernels/impl/amx_tiles.inl.h"
#include "kernels/impl/e2m1_tiles.inl.h"
#include "kernels/impl/int_dequantise.inl.h"
#include "kernels/impl/int_round.inl.h"
#include "kernels/impl/int_tiles.inl.h"
#include "kernels/impl/integer_tables.h"

namespace pinion::kernels::impl {
namespace {

// Signed activations times unsigned codes.
struct AmxSU8 : AmxTiles {
  template <int sum, int a, int b>
  static void Dot() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(a), "i"(b));
  }
};

struct AmxVectors {
  static void Unpack(const std::byte* src, std::byte* low, std::byte* high) {
    const Vec nibbles = Bits(_mm512_loadu_si512(src));
    _mm512_store_si512(low, Ints(LowNibbles(nibbles)));
    _mm512_store_si512(high, Ints(HighNibbles(nibbles)));
  }
  static void WholeRow(const IntLayout& layout, const std::byte* row, const std::byte* tail,
                       const float* sums, float* y) {
    FinishWholeRow(layout, row, tail, sums, y);
  }
  static void AddGroup(const IntLayout& layout, const std::byte* scales, const GroupSums& sums,
                       size_t row, size_t rows, float (*totals)[kBlockN]) {
    const auto add = layout.has_offsets ? impl::AddGroup<GroupScales::kF16AndOffsets>
                                        : impl::AddGroup<GroupScales::kF16>;
    const size_t outputs = sums.outputs;
    for (size_t output = 0; output < outputs; output += kAddedOutputs)
      add(layout, scales, sums.output + output, sums.x_sums + row, rows,
          {sums.sums + row * outputs + output, outputs},
          {totals[row] + sums.output + output, kBlockN});
  }
  static void AddOutliers(const IntLayout& layout, const std::byte* x, size_t rows,
                          const std::byte* block, float* y, size_t ldy) {
    impl::AddOutliers(layout, x, rows, block, y, ldy);
  }
  static void ScaleRow(float row_scale, const float* scales, const float* sums, float* y) {
    impl::ScaleRow(row_scale, scales, sums, y);
  }
};

// Twice the values of e2m1 in bfloat16, by their nibbles, whose negative zero is zero. Two copies,
// because a lookup reads five bits of its index.
alignas(64) constexpr uint16_t kDoubledE2M1[32] = {
    0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40c0, 0x4100, 0x4140,  //
    0, 0xbf80, 0xc000, 0xc040, 0xc080, 0xc0c0, 0xc100, 0xc140,  //
    0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40c0, 0x4100, 0x4140,  //
    0, 0xbf80, 0xc000, 0xc040, 0xc080, 0xc0c0, 0xc100, 0xc140};
alignas(64) constexpr float kDoubledE2M1Floats[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                      0, -1, -2, -3, -4, -6, -8, -12};

struct AmxE2m1Vectors : AmxVectors {
  static void WidenStep(const std::byte* x, std::byte* dst) {
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
    const __m256i bytes =
        _mm256_shuffle_epi8(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)), order);
    const auto widen = [](__m128i half) {
      return _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(half)));
    };
    // Whole numbers below 256 leave the low halves of floats zero.
    alignas(64) static constexpr uint16_t kHighHalves[32] = {
        1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
        33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    _mm512_store_si512(dst, _mm512_permutex2var_epi16(widen(_mm256_castsi256_si128(bytes)),
                                                      _mm512_load_si512(kHighHalves),
                                                      widen(_mm256_extracti128_si256(bytes, 1))));
  }

  template <size_t kWords>
  static void WidenWords(ScaleType type, const std::byte* codes, const std::byte* scales,
                         std::byte* dst) {
    type == ScaleType::kPower ? WidenByPowers<kWords>(codes, scales, dst)
                              : WidenByE4m3<kWords>(codes, scales, dst);
  }

  // A power of two lowers the exponent, except of zero. The byte of a scale that is not finite
  // makes its weights NaN.
  template <size_t kWords>
  static void WidenByPowers(const std::byte* codes, const std::byte* powers, std::byte* dst) {
    const __m512i wide =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(powers)));
    const __m512i bytes = _mm512_or_si512(wide, _mm512_slli_epi32(wide, 16));
    const __mmask32 live = _mm512_test_epi16_mask(bytes, bytes);
    const __m512i lower = _mm512_slli_epi16(_mm512_sub_epi16(_mm512_set1_epi16(127), bytes), 7);
    const __m512i values = _mm512_load_si512(kDoubledE2M1);
    for (size_t word = 0; word < kWords; ++word, codes += kBlockN * sizeof(uint32_t)) {
      const __m512i nibbles = _mm512_loadu_si512(codes);
      const auto put = [&](size_t row, __m512i at) {
        _mm512_store_si512(
            dst + (word * 4 + row) * kTileBytes,
            _mm512_maskz_subs_epu16(live, _mm512_permutexvar_epi16(at, values), lower));
      };
      put(0, nibbles);
      put(1, _mm512_srli_epi16(nibbles, 4));
      put(2, _mm512_srli_epi16(nibbles, 8));
      put(3, _mm512_srli_epi16(nibbles, 12));
    }
    const __mmask32 nan = _mm512_cmpeq_epi16_mask(bytes, _mm512_set1_epi16(255));
    if (nan == 0) [[likely]]
      return;
    for (size_t row = 0; row < kWords * 4; ++row)
      _mm512_mask_storeu_epi16(dst + row * kTileBytes, nan, _mm512_set1_epi16(0x7fc0));
  }

  // As floats, whose low halves are zero: weights have six significant bits. The code of a pair's
  // second column is 16 bits above that of its first.
  template <size_t kWords>
  static void WidenByE4m3(const std::byte* codes, const std::byte* scales, std::byte* dst) {
    const Vec scale = WidenE4m3(scales), values = Load(kDoubledE2M1Floats);
    const auto weights = [&](__m512i at) {
      return Ints(_mm512_permutexvar_ps(at, values) * scale);
    };
    for (size_t word = 0; word < kWords; ++word, codes += kBlockN * sizeof(uint32_t)) {
      const __m512i nibbles = _mm512_loadu_si512(codes);
      const auto put = [&](size_t row, __m512i even, __m512i odd) {
        _mm512_store_si512(dst + (word * 4 + row) * kTileBytes,
                           _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(weights(even), 16),
                                                   weights(odd)));
      };
      put(0, nibbles, _mm512_srli_epi32(nibbles, 16));
      put(1, _mm512_srli_epi32(nibbles, 4), _mm512_srli_epi32(nibbles, 20));
      put(2, _mm512_srli_epi32(nibbles, 8), _mm512_srli_epi32(nibbles, 24));
      put(3, _mm512_srli_epi32(nibbles, 12), _mm512_srli_epi32(nibbles, 28));
    }
  }
};

void AmxIntGemm(const IntLayout& layout, const IntGemmArgs& args) {
  if (FitsTiles(layout, args.rows)) {
    IntTileGemm<AmxSU8, AmxVectors>(layout, args);
  } else if (FitsE2m1Tiles(layout, args.rows)) {
    E2m1TileGemm<AmxPairs, AmxE2m1Vectors>(layout, args);
  } else {
    IntGemm(layout, args);
  }
}

ProductCut AmxIntCut(const IntLayout& layout, size_t rows) {
  if (FitsE2m1Tiles(layout, rows)) return E2m1TileCut();
  return FitsTiles(layout, rows) ? IntTileCut(layout, rows) : ProductCut{};
}

}  // namespace

const IntTable kIntAmx = {"amx_int8", Round, AmxIntGemm, Dequantise, AmxIntCut};

}  // namespace pinion::kernels::impl
