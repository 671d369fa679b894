// AVX-512 with BF16 and VNNI: attention over a cache of bytes. VPDPBUSD multiplies fours of bytes,
// unsigned ones by signed ones, and adds them to an int32.

#include "kernels/impl/vec_avx512.inl.h"
//
#include "kernels/impl/attention.inl.h"
#include "kernels/impl/operand_avx512_bf16.inl.h"
#include "kernels/impl/operand_bytes.inl.h"
#include "kernels/impl/tables.h"

namespace pinion::kernels::impl {
namespace {

// sum + the products of unsigned bytes by signed ones. In assembly, because the intrinsic takes
// integers, and with casts to and from Vec GCC copies every sum twice for each product.
Vec DotFours(Vec u, Vec s, Vec sum) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(u), "v"(s));
  return sum;
}

// Rounding queries to 8 bits errs as much as the keys' own 8 bits do. VPDPBUSD needs one unsigned
// operand: flipping the keys' sign bits makes them 128 larger, and Start takes off what that adds.
struct OperandI8Keys {
  using X = int8_t;
  static constexpr size_t kStepK = 4, kSubs = 1, kBytes = 4;
  static constexpr float kTop = 127, kUnit = 1;

  template <bool half>
  static Vec Load(const std::byte* w, size_t) {
    const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
    return Bits(_mm512_xor_si512(Ints(LoadWords<half>(w)), flip));
  }
  static Vec Spread(const int8_t* x, size_t) { return SpreadPair(x); }
  static Vec MultiplyAdd(Vec w, Vec x, Vec sum) { return DotFours(w, x, sum); }
  static Vec Floats(Vec sum) { return ToFloats(sum); }
  static void Put(int8_t* x, Vec v) {
    const __m128i bytes = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(x), bytes);
  }
  static Vec Start(const int8_t* x, size_t n) {
    int sum = 0;
    for (size_t i = 0; i < n; ++i) sum += x[i];
    return Bits(_mm512_set1_epi32(-128 * sum));
  }
};

// Weights are never negative, so 16 bits of them are two unsigned digits of 8 and values stay as
// they lie. Exact in int32: sums are at most kStripTokens * 127 * 65535 = 2^30.99.
struct OperandI8Vnni {
  using X = uint16_t;  // of every four weights: the higher digits, then the lower ones
  using Keys = OperandI8Keys;
  static constexpr size_t kStepK = 4, kSubs = 1, kDigits = 2, kBytes = 4;
  static constexpr float kTop = 65535, kUnit = 1;

  template <bool half>
  static Vec Load(const std::byte* w, size_t) {
    return LoadWords<half>(w);
  }
  static Vec Spread(const uint16_t* x, size_t digit) { return SpreadPair(x + 2 * digit); }
  static Vec MultiplyAdd(Vec w, Vec x, Vec sum) { return DotFours(x, w, sum); }
  static Vec Raise(Vec sum) { return Bits(_mm512_slli_epi32(Ints(sum), 8)); }
  static Vec Floats(Vec sum) { return ToFloats(sum); }
  static void Put(uint16_t* x, Vec v) {
    const __m256i digits = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(1, 3, 5, 7, 0, 2, 4, 6, 9, 11, 13, 15, 8, 10, 12, 14));
    const __m256i words = _mm512_cvtusepi32_epi16(_mm512_cvtps_epi32(v));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(x), _mm256_shuffle_epi8(words, digits));
  }
};

template <typename Format>
struct OperandF8 : OperandBf16 {
  static constexpr size_t kStepK = 4, kSubs = 2;
  static constexpr float kTop = kFloatTop, kUnit = Format::kUnit;

  template <bool half>
  static Vec Load(const std::byte* w, size_t sub) {
    const Vec bytes = LoadWords<half>(w);
    return sub == 0 ? EvenBytesShifted<Format::kShift>(bytes, Format::kMask)
                    : OddBytesShifted<Format::kShift>(bytes, Format::kMask);
  }
  static Vec Spread(const Bf16* x, size_t sub) { return OperandBf16::Spread(x + 2 * sub, 0); }
  static Vec Floats(Vec sum) { return sum; }
  static void Put(Bf16* x, Vec v) { OperandBf16::Put(x, EvenFirst(v)); }
};

struct Bytes {
  using I8 = OperandI8Vnni;
  using E5m2 = OperandF8<BitsE5m2>;
  using E4m3 = OperandF8<BitsE4m3>;
};

}  // namespace

void Avx512Bf16AttentionOfBytes(const AttentionArgs& args) { AttentionOfBytes<Bytes>(args); }

}  // namespace pinion::kernels::impl
