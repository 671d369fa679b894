// AVX-512 without VNNI: bytes are widened to 16 bits, even and odd ones apart, because VPMADDUBSW
// saturates.

#include "kernels/impl/int_avx512.inl.h"

namespace pinion::kernels::impl {
namespace {

Vec Dot(Vec w, Vec x, Vec sum) {
  const __m512i low = _mm512_set1_epi16(0xff);
  const __m512i w_even = _mm512_and_si512(Ints(w), low), w_odd = _mm512_srli_epi16(Ints(w), 8);
  const __m512i x_even = _mm512_srai_epi16(_mm512_slli_epi16(Ints(x), 8), 8);
  const __m512i x_odd = _mm512_srai_epi16(Ints(x), 8);
  const __m512i products =
      _mm512_add_epi32(_mm512_madd_epi16(w_even, x_even), _mm512_madd_epi16(w_odd, x_odd));
  return Bits(_mm512_add_epi32(Ints(sum), products));
}

}  // namespace
}  // namespace pinion::kernels::impl

#include "kernels/impl/integer.inl.h"
//
#include "kernels/impl/int_dequantise.inl.h"
#include "kernels/impl/integer_tables.h"

namespace pinion::kernels::impl {

const IntTable kIntAvx512 = {"avx512", Round, IntGemm, Dequantise};

}  // namespace pinion::kernels::impl
