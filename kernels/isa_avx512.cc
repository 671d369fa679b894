// AVX-512 F, BW, DQ, VL, without instructions for bfloat16.

#include "kernels/impl/vec_avx512.inl.h"
//
#include "kernels/impl/table.inl.h"

namespace pinion::kernels::impl {

const Table kAvx512Table = MakeTable<OperandBf16Widened>(Isa::kAvx512);

}  // namespace pinion::kernels::impl
