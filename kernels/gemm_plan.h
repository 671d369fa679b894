#pragma once

// Which kernel multiplies, by the number of rows. Several can compute the same product (the tables
// of this ISA path and of weaker ones, oneDNN), and which of them is fastest differs from CPU to
// CPU even where the instructions are the same: so it is measured, and Gemm() (kernels.h) follows
// the rules that result.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"

namespace pinion::kernels {

// One way to compute a product.
struct GemmKernel {
  Isa isa = Isa::kScalar;  // whose table; of oneDNN: whose cap
  bool is_onednn = false;  // a single-thread oneDNN primitive over the packed weights
  Prefetch prefetch = Prefetch::kNear;
  bool operator==(const GemmKernel&) const = default;
};
std::string Name(
    const GemmKernel& kernel);  // "avx512_bf16", "avx512_bf16-far", "avx2-none", "onednn"

// From `from_rows` rows on, up to the next rule's.
struct GemmRule {
  size_t from_rows = 1;
  GemmKernel kernel;
  bool operator==(const GemmRule&) const = default;
};
using GemmRules = std::vector<GemmRule>;  // ascending; the first is from 1 on

// What can multiply weights of this type on this path; the path's own table comes first, and is
// what Gemm() uses until it is told otherwise.
std::vector<GemmKernel> GemmCandidates(Isa isa, Dtype weights);

// "avx512_bf16,avx512_bf16-far@6,onednn@128": NAME@ROWS, "@1" left out.
std::string Format(const GemmRules& rules);
// The reverse; nothing where it is malformed or names what is no candidate.
std::optional<GemmRules> ParseGemmRules(std::string_view text, Isa isa, Dtype weights);

// The product by this kernel, whatever the rules say; by its ISA's table where oneDNN fails to make
// a primitive.
void RunGemmKernel(const GemmKernel& kernel, Dtype weights, GemmArgs args);

// Times every candidate at some numbers of rows on the calling thread, weights coming from memory;
// takes some 35 ms the first time, and remembers the result for this process. A candidate must be
// faster than those before it by 15 % to be chosen, or by 4 % where it computes the same bits: ties
// go to the path's own table. Thread-safe. oneDNN must have been capped before (LimitOneDnn).
GemmRules MeasureGemmRules(Isa isa, Dtype weights);

// What Gemm() does from now on for this path's table and type. Not while Gemm() runs.
void UseGemmRules(Isa isa, Dtype weights, const GemmRules& rules);
const GemmRules& ActiveGemmRules(Isa isa, Dtype weights);

}  // namespace pinion::kernels
