#pragma once

// Products with weights of eight bits in floating point (e4m3), as FP8 checkpoints hold them. Bytes
// become floats, which is exact, while they are multiplied: in registers for a few rows, in a
// buffer in L1 for many. Scales are applied to each group's sums in float32, so that no weight is
// ever rounded. Activations are floats, too; a checkpoint's scheme may ask that they be rounded to
// values of e4m3 first. Contract, threads and errors as in kernels.h.

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

// How a row of activations is rounded: to scale * value, value being the one of e4m3 that is
// nearest to activation / scale, halves to even; magnitudes above 448 become 448. A NaN stays one.
struct E4m3Rounding {
  // 0: dynamic, absmax / 448 of the columns that share one. A group with a NaN or an infinity is
  // all NaN.
  float scale = 0;
  // So many columns of the whole matrix share a dynamic one; 0: all of the row.
  size_t group = 0;
  size_t first = 0;            // the column of the whole matrix where the row begins
  bool powers_of_two = false;  // dynamic scales are, the next one from absmax / 448 on
};
struct E4m3RoundArgs {
  void* dst;      // [k]; may be x
  const void* x;  // [k]
  Dtype type;     // of both: kBf16, of which the result is the nearest, or kF32
  size_t k;
  E4m3Rounding rounding;
};

struct E4m3Table {
  const char* name;  // "avx512_bf16": the instructions used for activations in bfloat16
  // layout: with e4m3
  void (*gemm)(const IntLayout& layout, const E4m3GemmArgs& args);
  // All tables give the same bits.
  void (*round)(const E4m3RoundArgs& args);
  // How rows are best cut into calls of gemm; null: any cut is as good.
  ProductCut (*cut)(const IntLayout& layout, Dtype x_type, size_t rows) = nullptr;
};
// The best table within a usable ISA path.
const E4m3Table& E4m3TableFor(Isa isa);

}  // namespace pinion::kernels
