// AVX2: bytes are widened to 16 bits, even and odd ones apart, because VPMADDUBSW
// saturates.

#include "kernels/impl/int_avx2.inl.h"

namespace pinion::kernels::impl {
namespace {

Vec Dot(Vec w, Vec x, Vec sum) {
  const __m256i low = _mm256_set1_epi16(0xff);
  const __m256i w_even = _mm256_and_si256(Ints(w), low), w_odd = _mm256_srli_epi16(Ints(w), 8);
  const __m256i x_even = _mm256_srai_epi16(_mm256_slli_epi16(Ints(x), 8), 8);
  const __m256i x_odd = _mm256_srai_epi16(Ints(x), 8);
  const __m256i products =
      _mm256_add_epi32(_mm256_madd_epi16(w_even, x_even), _mm256_madd_epi16(w_odd, x_odd));
  return Bits(_mm256_add_epi32(Ints(sum), products));
}

}  // namespace
}  // namespace pinion::kernels::impl

#include "kernels/impl/integer.inl.h"
//
#include "kernels/impl/int_dequantise.inl.h"
#include "kernels/impl/integer_tables.h"

namespace pinion::kernels::impl {

const IntTable kIntAvx2 = {"avx2", Round, IntGemm, Dequantise};

}  // namespace pinion::kernels::impl
