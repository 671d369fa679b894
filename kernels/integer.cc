#include "kernels/integer.h"

#include <emmintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/impl/cpuid.h"
#include "kernels/impl/e2m1.inl.h"
#include "kernels/impl/e4m3_tables.h"
#include "kernels/impl/integer_tables.h"
#include "kernels/impl/transpose.inl.h"

namespace pinion::kernels {
namespace {

// Columns packed at a time: few enough for those of all outputs to stay in L1.
constexpr size_t kPackColumns = 64;

// The codes of these columns as words: codes of 8 bits fill a row, codes of 4 bits half of one.
struct alignas(64) Tile {
  std::byte bytes[kBlockN][kPackColumns];
};

// Folds eight columns, as bytes below 16, into a word: columns 0 to 3 become the low halves of its
// bytes, 4 to 7 the high halves. Each argument holds two such groups of eight.
__m128i FoldEights(__m128i a, __m128i b) {
  const __m128 words_a = _mm_castsi128_ps(_mm_or_si128(a, _mm_srli_epi64(a, 28)));
  const __m128 words_b = _mm_castsi128_ps(_mm_or_si128(b, _mm_srli_epi64(b, 28)));
  return _mm_castps_si128(_mm_shuffle_ps(words_a, words_b, _MM_SHUFFLE(2, 0, 2, 0)));
}

// Stores one output's columns as words, less the lowest code and with zeros from `live` on. Returns
// the sum of the stored values.
template <int kBits>
int32_t StoreWords(const int8_t* codes, size_t live, int lowest, std::byte* words) {
  int8_t padded[kPackColumns];
  if (live < kPackColumns) {
    std::memset(padded, lowest, sizeof(padded));
    std::memcpy(padded, codes, live);
    codes = padded;
  }
  const __m128i least = _mm_set1_epi8(static_cast<char>(lowest)), zero = _mm_setzero_si128();
  __m128i bytes[4], sums = zero;
  for (size_t i = 0; i < 4; ++i) {
    bytes[i] = _mm_sub_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes) + i), least);
    sums = _mm_add_epi64(sums, _mm_sad_epu8(bytes[i], zero));
  }
  auto* dst = reinterpret_cast<__m128i*>(words);
  if constexpr (kBits == 4) {
    for (size_t i = 0; i < 2; ++i)
      _mm_store_si128(dst + i, FoldEights(bytes[2 * i], bytes[2 * i + 1]));
  } else {
    for (size_t i = 0; i < 4; ++i) _mm_store_si128(dst + i, bytes[i]);
  }
  return _mm_cvtsi128_si32(_mm_add_epi64(sums, _mm_unpackhi_epi64(sums, sums)));
}

// The nibbles of e2m1 whose doubled values these are.
void EncodeE2M1(const int8_t* doubled, size_t count, int8_t* nibbles) {
  for (size_t i = 0; i < count; ++i) {
    const int magnitude = std::abs(doubled[i]);
    // 0, 1, 2, 3, 4, 6, 8 and 12 by their places.
    const int place = std::min(magnitude, 4) + (magnitude > 4) + (magnitude > 6) + (magnitude > 8);
    nibbles[i] = static_cast<int8_t>(doubled[i] < 0 ? place + 8 : place);
  }
}

// Packs a group's codes of `rows` outputs; columns from `live` up to `width` become zero. Adds each
// output's stored codes to its sum. TransposeWords writes four words at a time, so a group of two
// (4 bits, 16 columns) also overwrites what follows it, which is packed later.
template <int kBits>
void PackCodes(std::byte* dst, const IntLayout& layout, const int8_t* codes, size_t rows,
               size_t live, size_t width, int32_t* sums) {
  constexpr size_t kStep = 32 / kBits;
  Tile tile = {};
  for (size_t k = 0; k < width; k += kPackColumns) {
    const size_t first = std::min(k, live);
    for (size_t row = 0; row < rows; ++row) {
      const int8_t* src = codes + row * layout.k + first;
      int8_t nibbles[kPackColumns];
      if (layout.e2m1()) {
        EncodeE2M1(src, std::min(live - first, kPackColumns), nibbles);
        src = nibbles;
      }
      sums[row] +=
          StoreWords<kBits>(src, live - first, layout.e2m1() ? 0 : layout.lowest, tile.bytes[row]);
    }
    impl::TransposeWords(dst + layout.code_bytes(k), tile.bytes[0], sizeof(tile.bytes[0]),
                         std::min(kPackColumns, width - k) / kStep);
  }
}

// The unit of an output's float16 scales and offsets: the power of two above their largest
// magnitude, because division by it is exact.
float OutputScale(const IntLayout& layout, const float* scales, const float* offsets) {
  if (layout.whole_rows()) return scales[0];
  float largest = 0;
  for (size_t group = 0; group < layout.groups(); ++group) {
    largest = std::max(largest, std::abs(scales[group]));
    if (layout.has_offsets) largest = std::max(largest, std::abs(offsets[group]) / 16);
  }
  int exponent = 0;
  std::frexp(largest, &exponent);
  return largest > 0 ? std::ldexp(1.0f, exponent) : 1;
}

template <typename T>
void Put(std::byte* dst, size_t index, T value) {
  std::memcpy(dst + index * sizeof(T), &value, sizeof(T));
}

// A power of two below 1 as the byte that kPower has for it; 255 if it is not finite.
std::byte PowerByte(float power) {
  if (!std::isfinite(power)) return std::byte{255};
  const int exponent = power > 0 ? std::ilogb(power) + 127 : 0;
  return static_cast<std::byte>(std::max(exponent, 0));
}

// The byte that kE4m3 has for a scale in units.
std::byte E4m3Byte(float scale) {
  constexpr float kHalfway = (kLargestE4m3 + 480) / 2;
  if (std::abs(scale) < kHalfway) return std::byte{ToE4m3(scale).bits};
  return std::byte{scale < 0 ? uint8_t{0xff} : uint8_t{0x7f}};
}

// 2^8 of the unit, which is what a scale of kE4m3 is relative to.
float E4m3OutputScale(const IntLayout& layout, const float* scales, float unit) {
  const bool finite = std::all_of(scales, scales + layout.groups(),
                                  [](float scale) { return std::isfinite(scale); });
  return finite ? unit * 0x1p8f : std::nanf("");
}

// Stores an output's scales, offsets and sum of codes.
void PackScales(std::byte* dst, const IntLayout& layout, size_t output, int32_t stored_sum,
                const float* scales, const float* offsets, float unit) {
  const bool is_e4m3 = layout.scale_type == ScaleType::kE4m3;
  const float own =
      is_e4m3 ? E4m3OutputScale(layout, scales, unit) : OutputScale(layout, scales, offsets);
  std::byte* tail = dst + layout.groups() * layout.group_bytes();
  const int32_t sum = stored_sum + static_cast<int32_t>(layout.k) * layout.lowest;
  Put(tail, output, own);
  Put(tail, kBlockN + output, layout.whole_rows() ? sum : 0);
  if (layout.whole_rows()) return;
  for (size_t group = 0; group < layout.groups(); ++group) {
    std::byte* at = dst + group * layout.group_bytes() + layout.code_bytes(layout.group);
    if (layout.e2m1()) {
      Put(at, output, is_e4m3 ? E4m3Byte(scales[group] / unit) : PowerByte(scales[group] / own));
      continue;
    }
    Put(at, output, ToF16(scales[group] / own));
    // Codes are stored less the lowest, so the offset includes it.
    const float offset = offsets[group] + scales[group] * static_cast<float>(layout.lowest);
    if (layout.has_offsets) Put(at, kBlockN + output, ToF16(offset / own));
  }
}

// The bytes at even and at odd places of a, then of b.
struct EvenOdd {
  __m128i even, odd;
};
EvenOdd Deinterleave(__m128i a, __m128i b) {
  const __m128i low = _mm_set1_epi16(0xff);
  return {_mm_packus_epi16(_mm_and_si128(a, low), _mm_and_si128(b, low)),
          _mm_packus_epi16(_mm_srli_epi16(a, 8), _mm_srli_epi16(b, 8))};
}

// bytes[i]: byte i of each of the 16 words in a, b, c and d.
struct WordBytes {
  __m128i bytes[4];
};
WordBytes DeinterleaveWords(__m128i a, __m128i b, __m128i c, __m128i d) {
  const auto [even_ab, odd_ab] = Deinterleave(a, b);
  const auto [even_cd, odd_cd] = Deinterleave(c, d);
  const auto [first, third] = Deinterleave(even_ab, even_cd);
  const auto [second, fourth] = Deinterleave(odd_ab, odd_cd);
  return {{first, second, third, fourth}};
}

// dst[i * 2 * kNibbleWords]: the low (kShift 0) or high (kShift 4) half of byte i of 16 words, less
// `biases`.
template <int kShift>
void UnpackHalves(const uint32_t* words, __m128i biases, int8_t* dst) {
  const auto four = [&](size_t i) {
    const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(words) + i);
    return _mm_sub_epi8(_mm_and_si128(_mm_srli_epi32(all, kShift), _mm_set1_epi8(15)), biases);
  };
  const WordBytes dealt = DeinterleaveWords(four(0), four(1), four(2), four(3));
  for (size_t i = 0; i < 4; ++i)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + 2 * i * kNibbleWords), dealt.bytes[i]);
}

bool HasVnni() { return __builtin_cpu_supports("avx512vnni"); }

// Intel SDM volume 2, CPUID leaf 7: AMX-INT8. Everything else that tiles need is there if kAmx is
// usable.
bool HasAmxInt8() { return impl::Cpuid(7, 0).edx >> 25 & 1; }

}  // namespace

void PackIntBlock(std::byte* dst, const IntLayout& layout, const int8_t* codes, const float* scales,
                  const float* offsets, size_t rows, const float* units) {
  if (layout.e4m3) return impl::PackE4m3Block(dst, layout, codes, scales, rows);
  if (rows < kBlockN) std::memset(dst, 0, layout.block_bytes());
  const auto pack = layout.bits == 4 ? PackCodes<4> : PackCodes<8>;
  const size_t width = layout.whole_rows() ? layout.k_padded() : layout.group;
  int32_t sums[kBlockN] = {};
  for (size_t group = 0; group < layout.groups(); ++group)
    pack(dst + group * layout.group_bytes(), layout, codes + group * width, rows,
         std::min(width, layout.k - group * width), width, sums);
  for (size_t row = 0; row < rows; ++row)
    PackScales(dst, layout, row, sums[row], scales + row * layout.groups(),
               offsets + row * layout.groups(), units ? units[row] : 1);
}

void UnpackNibbles(const uint32_t* words, int bias, int8_t* dst) {
  const __m128i biases = _mm_set1_epi8(static_cast<char>(bias));
  for (size_t word = 0; word < kNibbleWords; word += 16) {
    UnpackHalves<0>(words + word, biases, dst + word);
    UnpackHalves<4>(words + word, biases, dst + kNibbleWords + word);
  }
}

const IntTable& IntTableFor(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return impl::kIntScalar;
    case Isa::kAvx2:
      return impl::kIntAvx2;
    case Isa::kAvx2Vnni:
      return impl::kIntAvx2Vnni;
    case Isa::kAvx512:
      return impl::kIntAvx512;
    case Isa::kAvx512Vnni:
      return impl::kIntAvx512Vnni;
    case Isa::kAvx512Bf16:
      return HasVnni() ? impl::kIntAvx512Vnni : impl::kIntAvx512;
    case Isa::kAmx:
      return HasVnni() && HasAmxInt8() ? impl::kIntAmx : IntTableFor(Isa::kAvx512Bf16);
  }
  __builtin_unreachable();
}

}  // namespace pinion::kernels
