// AVX-512 with BF16: VDPBF16PS multiplies pairs of bfloat16 and adds both products to a float32.

#include "kernels/impl/vec_avx512.inl.h"
//
#include "kernels/impl/operand_avx512_bf16.inl.h"
#include "kernels/impl/table.inl.h"
//
#include "kernels/impl/probe.inl.h"

namespace pinion::kernels::impl {

const Table kAvx512Bf16Table = MakeTable<OperandBf16>(Isa::kAvx512Bf16);
// A lane holds two products.
const Probes kAvx512Bf16Probes = MakeProbes(Isa::kAvx512Bf16, ProbeMultiply<OperandBf16, 4>);

}  // namespace pinion::kernels::impl
