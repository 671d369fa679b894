#pragma once

#include "kernels/probe.h"

namespace pinion::kernels::impl {

// One per isa_<name>.cc. (AMX has kAvx512Bf16's, with tiles for bfloat16: see ProbesFor.)
extern const Probes kScalarProbes;
extern const Probes kAvx2Probes;
extern const Probes kAvx512Probes;
extern const Probes kAvx512Bf16Probes;
uint64_t ProbeAmxBf16(size_t steps);
uint64_t ProbeAmxS8(size_t steps);
uint64_t ProbeLoadedAmxBf16(const std::byte* a, size_t a_bytes, const std::byte* b, size_t b_bytes,
                            size_t steps);
uint64_t ProbeLoadedAmxS8(const std::byte* a, size_t a_bytes, const std::byte* b, size_t b_bytes,
                          size_t steps);

}  // namespace pinion::kernels::impl
