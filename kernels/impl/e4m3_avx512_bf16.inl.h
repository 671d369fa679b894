#pragma once

// e4m3 as pairs of bfloat16, which hold it exactly: VPERMI2B looks both bytes of each up. (A shift
// would do for normal numbers; VDPBF16PS reads subnormals as zero.) Include vec_avx512.inl.h first.

#include "kernels/impl/operand_avx512_bf16.inl.h"

namespace pinion::kernels::impl {
namespace {

// The bytes of all magnitudes as bfloat16: the lower ones, then the upper ones.
struct E4m3Bytes {
  uint8_t bytes[2][128];
};
constexpr E4m3Bytes MakeE4m3Bytes() {
  E4m3Bytes table{};
  for (int magnitude = 0; magnitude < 128; ++magnitude) {
    int exponent = magnitude >> 3, mantissa = magnitude & 7;
    if (exponent == 0 && mantissa > 0) {  // subnormal: 2^-9 times 1 to 7
      exponent = 1;
      while (mantissa < 8) mantissa <<= 1, --exponent;
      mantissa &= 7;
    }
    const int bits = magnitude == 0 ? 0 : (exponent + 120) << 7 | mantissa << 4;
    table.bytes[0][magnitude] = static_cast<uint8_t>(bits & 0xff);
    table.bytes[1][magnitude] = static_cast<uint8_t>(bits >> 8);
  }
  return table;
}
alignas(64) constexpr E4m3Bytes kE4m3Bytes = MakeE4m3Bytes();

struct OperandE4m3Pairs {
  using X = Bf16;
  // 16 rows, three tiles, reach 74 % of the roof if their weights are converted once, and 59 % if
  // each tile converts them (Zen 5, two threads, pinion-bench
  // --benchmark_filter='e4m3/avx512_bf16/blocks-128/1b.(o|gate_up)/16/').
  static constexpr size_t kSubs = 1, kStepBytes = 128, kMostTiles = 2;
  static constexpr float kUnit = 1;

  struct Halves {
    __m512i low, high;
  };
  static __m512i LookUp(const uint8_t (&table)[128], __m512i bytes) {
    return _mm512_permutex2var_epi8(_mm512_load_si512(table), bytes, _mm512_load_si512(table + 64));
  }
  static Halves Fetch(const std::byte* w, size_t load) {
    const __m512i bytes = _mm512_loadu_si512(w + 64 * load);
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    const __m512i magnitude = LookUp(kE4m3Bytes.bytes[1], bytes);
    // magnitude | (bytes & sign)
    return {LookUp(kE4m3Bytes.bytes[0], bytes),
            _mm512_ternarylogic_epi64(magnitude, bytes, sign, 0xf8)};
  }
  template <size_t sub>
  static Vec Weights(const Halves& halves, size_t v) {
    return Bits(v == 0 ? _mm512_unpacklo_epi8(halves.low, halves.high)
                       : _mm512_unpackhi_epi8(halves.low, halves.high));
  }
  static size_t OutputOf(size_t load, size_t v) { return 32 * load + 16 * v; }
  static Vec Spread(const Bf16* x, size_t sub) { return OperandBf16::Spread(x, sub); }
  static Vec MultiplyAdd(Vec w, Vec x, Vec sum) { return OperandBf16::MultiplyAdd(w, x, sum); }
};

}  // namespace
}  // namespace pinion::kernels::impl
