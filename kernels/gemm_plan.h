#pragma once

// The choice of a GEMM kernel by the number of rows. Several kernels can compute the same product
// (the tables of this ISA path and of weaker ones, oneDNN), and the fastest of them differs from
// CPU to CPU even with the same instructions. So it is measured, and Gemm() (kernels.h) follows the
// rules that result.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"

namespace pinion::kernels {

// One way to compute a product.
struct GemmKernel {
  Isa isa = Isa::kScalar;  // of the table; for oneDNN: its cap
  bool is_onednn = false;  // a single-thread oneDNN primitive over the packed weights
  Prefetch prefetch = Prefetch::kNear;
  bool operator==(const GemmKernel&) const = default;
};
std::string Name(
    const GemmKernel& kernel);  // "avx512_bf16", "avx512_bf16-far", "avx2-both", "onednn"

// From `from_rows` rows on, up to the next rule's.
struct GemmRule {
  size_t from_rows = 1;
  GemmKernel kernel;
  bool operator==(const GemmRule&) const = default;
};
using GemmRules = std::vector<GemmRule>;  // ascending; the first starts at 1 row

// The kernels that can multiply weights of this type on this path. The path's own table comes
// first; Gemm() uses it until UseGemmRules() is called.
std::vector<GemmKernel> GemmCandidates(Isa isa, Dtype weights);

// "avx512_bf16,avx512_bf16-far@6,onednn@128": NAME@ROWS, "@1" left out.
std::string Format(const GemmRules& rules);
// The reverse; nullopt if the text is malformed or names a kernel that is not a candidate.
std::optional<GemmRules> ParseGemmRules(std::string_view text, Isa isa, Dtype weights);

// Computes the product with this kernel, whatever the rules say; with its ISA's table if oneDNN
// cannot make a primitive.
void RunGemmKernel(const GemmKernel& kernel, Dtype weights, GemmArgs args);

// GemmStride, if this kernel multiplies.
size_t KernelStride(const Table& table, const GemmKernel& kernel, Dtype weights, size_t rows,
                    size_t k_padded);

// Times every candidate at some numbers of rows on the calling thread, with weights coming from
// memory. Takes some 35 ms the first time; the result is kept for this process. To be chosen, a
// candidate must be faster than those before it by 15 %, or by 4 % if it computes the same bits:
// ties go to the path's own table. Thread-safe. oneDNN must have been capped before (LimitOneDnn).
GemmRules MeasureGemmRules(Isa isa, Dtype weights);

// Sets the rules that Gemm() follows for this path's table and type. Not thread-safe: no Gemm() may
// be running.
void UseGemmRules(Isa isa, Dtype weights, const GemmRules& rules);
const GemmRules& ActiveGemmRules(Isa isa, Dtype weights);

}  // namespace pinion::kernels
