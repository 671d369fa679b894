#pragma once

// Whether this machine's tiles compute what they should: CPUID promises instructions, but a faulty
// emulation, hypervisor or compiler may still make them wrong, and no other sign would tell.

#include <string>

#include "kernels/integer.h"
#include "kernels/kernels.h"

namespace pinion::kernels {

// The GEMMs that kAmx computes on tiles; or those of another path.
struct TileProducts {
  void (*bf16)(const GemmArgs& args);
  void (*integer)(const IntLayout& layout, const IntGemmArgs& args);
};

// Multiplies a few tiles of each kind by both: bfloat16, 8 and 4 bits, full tiles, tiles of fewer
// rows, blocks of fewer outputs and columns that fill no step. Operands are whole numbers times
// powers of two, small enough that all sums are exact in float32, so results must be equal whatever
// the order of summation. Empty if they are; else one sentence on the first element that differs.
// Takes about half a millisecond and, while it runs, 100 KiB of heap.
std::string CompareTileProducts(const TileProducts& tiles, const TileProducts& reference);

// That comparison of kAmx with kAvx512Bf16 and the scalar integer table. kAmx must be usable.
std::string CheckAmx();

}  // namespace pinion::kernels
