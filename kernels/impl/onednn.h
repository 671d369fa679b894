#pragma once

#include "kernels/kernels.h"

namespace pinion::kernels::impl {

// Whether oneDNN, capped to `isa`, has primitives that read this type's packed layout in place.
bool HasOneDnn(Isa isa, Dtype weights);

// GEMM by single-thread oneDNN primitives of the calling thread. The first call for a shape makes
// the primitives for every number of rows, which takes some milliseconds. False if oneDNN has none
// or could not make one; y may then be partly written and must be computed by another kernel.
bool OneDnnGemm(Dtype weights, const GemmArgs& args);

}  // namespace pinion::kernels::impl
