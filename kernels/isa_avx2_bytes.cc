// AVX2 with FMA and F16C: attention over a cache of bytes.

#include "kernels/impl/vec_avx2.inl.h"
//
#include "kernels/impl/attention.inl.h"
#include "kernels/impl/operand_bytes.inl.h"
#include "kernels/impl/tables.h"

namespace pinion::kernels::impl {

void Avx2AttentionOfBytes(const AttentionArgs& args) { AttentionOfBytes<WidenedBytes>(args); }

}  // namespace pinion::kernels::impl
