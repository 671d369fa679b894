// AVX-512 with BF16 and VNNI: attention over a cache of bytes. VPDPWSSD multiplies pairs of int16
// and VPDPBUSD fours of bytes, and both add to an int32.

#include "kernels/impl/vec_avx512.inl.h"
//
#include "kernels/impl/attention.inl.h"
#include "kernels/impl/operand_avx512_bf16.inl.h"
#include "kernels/impl/operand_bytes.inl.h"
#include "kernels/impl/tables.h"

namespace pinion::kernels::impl {
namespace {

// Queries of 8 bits cost scores as much as the keys' own 8 bits do. VPDPBUSD wants the one operand
// unsigned: keys are taken 128 larger, and sums begin with what that adds.
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
  static Vec MultiplyAdd(Vec w, Vec x, Vec sum) {
    return Bits(_mm512_dpbusd_epi32(Ints(sum), Ints(w), Ints(x)));
  }
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

struct OperandI8Vnni : OperandI8 {
  using Keys = OperandI8Keys;
  static Vec MultiplyAdd(Vec w, Vec x, Vec sum) {
    return Bits(_mm512_dpwssd_epi32(Ints(sum), Ints(w), Ints(x)));
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
