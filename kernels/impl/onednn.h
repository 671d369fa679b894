#pragma once

#include "kernels/kernels.h"

namespace pinion::kernels::impl {

// GEMM by a single-thread oneDNN primitive of the calling thread, whatever OneDnnRows says. False,
// with y untouched, where oneDNN has no primitive that reads the packed layout in place (f16; bf16
// below avx512_bf16; anything below avx512) or failed to make one.
bool OneDnnGemm(Dtype weights, const GemmArgs& args);

}  // namespace pinion::kernels::impl
