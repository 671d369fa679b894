#pragma once

#include "kernels/kernels.h"

namespace pinion::kernels::impl {

// One per isa_<name>.cc. (AMX has two functions of its own: see TableFor.)
extern const Table kScalarTable;
extern const Table kAvx2Table;
extern const Table kAvx512Table;
extern const Table kAvx512Bf16Table;
void AmxGemmBf16(const GemmArgs& args);
void AmxAttention(const AttentionArgs& args);

}  // namespace pinion::kernels::impl
