// AVX-512 F, BW, DQ, VL: attention over a cache of bytes.

#include "kernels/impl/vec_avx512.inl.h"
//
#include "kernels/impl/attention.inl.h"
#include "kernels/impl/operand_bytes.inl.h"
#include "kernels/impl/tables.h"

namespace pinion::kernels::impl {

void Avx512AttentionOfBytes(const AttentionArgs& args) { AttentionOfBytes<WidenedBytes>(args); }

}  // namespace pinion::kernels::impl
