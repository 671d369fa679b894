// AVX-512 F, BW, DQ, VL, without instructions for bfloat16.

#include "kernels/impl/vec_avx512.inl.h"
//
#include "kernels/impl/table.inl.h"
//
#include "kernels/impl/probe.inl.h"

namespace pinion::kernels::impl {

const Table kAvx512Table = MakeTable<Avx512AttentionOfBytes>(Isa::kAvx512);
const Probes kAvx512Probes = MakeProbes(Isa::kAvx512, nullptr);

}  // namespace pinion::kernels::impl
