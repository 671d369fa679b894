// AVX2.

#include "kernels/impl/int_avx2.inl.h"
//
#include "kernels/impl/int_pairs.inl.h"
#include "kernels/impl/integer.inl.h"
//
#include "kernels/impl/int_dequantise.inl.h"
#include "kernels/impl/int_round.inl.h"
#include "kernels/impl/integer_tables.h"

namespace pinion::kernels::impl {

const IntTable kIntAvx2 = {"avx2", Round, IntGemm, Dequantise};

}  // namespace pinion::kernels::impl
