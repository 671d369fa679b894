#pragma once

#include "kernels/kernels.h"

namespace pinion::kernels::impl {

// Whether oneDNN, capped to `isa`, has primitives that read this type's packed layout in place.
bool HasOneDnn(Isa isa, Dtype weights);

// GEMM by single-thread oneDNN primitives of the calling thread. The first call for a shape makes
// all that it will ever need for it, for any number of rows: some milliseconds. False, with y
// untouched, where oneDNN has none or failed to make one.
bool OneDnnGemm(Dtype weights, const GemmArgs& args);

}  // namespace pinion::kernels::impl
