// AVX-512 with BF16: VDPBF16PS multiplies pairs of bfloat16 and adds both products to a float32.
// Everything else is AVX-512's (tables.h).

#include "kernels/impl/vec_avx512.inl.h"
//
#include "kernels/impl/attention.inl.h"
#include "kernels/impl/gemm.inl.h"
#include "kernels/impl/operand_avx512_bf16.inl.h"
#include "kernels/impl/tables.h"
//
#include "kernels/impl/probe.inl.h"

namespace pinion::kernels::impl {

void Avx512Bf16Gemm(const GemmArgs& args) { Gemm<OperandBf16, Bf16>(args); }

void Avx512Bf16Attention(const AttentionArgs& args) {
  if (args.dtype == KvDtype::kBf16) return AttentionAs<OperandBf16>(args);
  if (IsScaled(args.dtype)) return Avx512Bf16AttentionOfBytes(args);
  kAvx512Table.attention(args);
}

// Four operations a lane: two multiply-adds.
const Probes kAvx512Bf16Probes = MakeProbes(Isa::kAvx512Bf16, ProbeMultiply<OperandBf16, 4>);

}  // namespace pinion::kernels::impl
