// AVX-512 with VNNI: VPDPBUSD multiplies four pairs of bytes and adds the products to an int32.

#include "kernels/impl/int_avx512.inl.h"

namespace pinion::kernels::impl {
namespace {

Vec Dot(Vec w, Vec x, Vec sum) { return Bits(_mm512_dpbusd_epi32(Ints(sum), Ints(w), Ints(x))); }

}  // namespace
}  // namespace pinion::kernels::impl

#include "kernels/impl/int_fours.inl.h"
#include "kernels/impl/integer.inl.h"
//
#include "kernels/impl/int_dequantise.inl.h"
#include "kernels/impl/int_round.inl.h"
#include "kernels/impl/integer_tables.h"

namespace pinion::kernels::impl {

const IntTable kIntAvx512Vnni = {"avx512_vnni", Round, IntGemm, Dequantise};

}  // namespace pinion::kernels::impl
