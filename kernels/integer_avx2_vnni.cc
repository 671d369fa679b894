// AVX-VNNI: VPDPBUSD on 256 bits.

#include "kernels/impl/int_avx2.inl.h"

namespace pinion::kernels::impl {
namespace {

Vec Dot(Vec w, Vec x, Vec sum) {
  return Bits(_mm256_dpbusd_avx_epi32(Ints(sum), Ints(w), Ints(x)));
}

}  // namespace
}  // namespace pinion::kernels::impl

#include "kernels/impl/int_fours.inl.h"
#include "kernels/impl/integer.inl.h"
//
#include "kernels/impl/int_dequantise.inl.h"
#include "kernels/impl/int_round.inl.h"
#include "kernels/impl/integer_tables.h"

namespace pinion::kernels::impl {

const IntTable kIntAvx2Vnni = {"avx2_vnni", Round, IntGemm, Dequantise};

}  // namespace pinion::kernels::impl
