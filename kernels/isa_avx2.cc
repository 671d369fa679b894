// AVX2 with FMA and F16C.

#include "kernels/impl/vec_avx2.inl.h"
//
#include "kernels/impl/table.inl.h"
//
#include "kernels/impl/probe.inl.h"

namespace pinion::kernels::impl {

const Table kAvx2Table = MakeTable<Avx2AttentionOfBytes>(Isa::kAvx2);
const Probes kAvx2Probes = MakeProbes(Isa::kAvx2, nullptr);

}  // namespace pinion::kernels::impl
