#pragma once

// Products with weights of eight bits in floating point (e4m3), as FP8 checkpoints hold them. Bytes
// become floats, which is exact, while they are multiplied: in registers for a few rows, in a
// buffer in L1 for many. Scales are applied to each group's sums in float32, so that no weight is
// ever rounded. Contract, threads and errors as in kernels.h.

#include <cstddef>

#include "kernels/integer.h"
#include "kernels/isa.h"
#include "kernels/kernels.h"

namespace pinion::kernels {

// y[rows][blocks * 64] = x * w^T, overwriting y.
struct E4m3GemmArgs {
  const void* x;       // [rows][layout.k_padded()], else as in GemmArgs
  Dtype x_type;        // kBf16 or kF32
  const std::byte* w;  // `blocks` consecutive packed blocks (integer.h)
  float* y;            // row stride ldy elements, 64-byte aligned rows
  size_t rows, blocks, ldy;
  Prefetch prefetch = Prefetch::kNear;
};

struct E4m3Table {
  const char* name;  // "avx512_bf16": the instructions used for activations in bfloat16
  // layout: with e4m3
  void (*gemm)(const IntLayout& layout, const E4m3GemmArgs& args);
  // How rows are best cut into calls of gemm; null: any cut is as good.
  ProductCut (*cut)(const IntLayout& layout, Dtype x_type, size_t rows) = nullptr;
};
// The best table within a usable ISA path.
const E4m3Table& E4m3TableFor(Isa isa);

}  // namespace pinion::kernels
