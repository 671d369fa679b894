#pragma once

// Checks that this machine's tiles compute what they should. CPUID only promises the instructions;
// a faulty emulation, hypervisor or compiler may still make results wrong, and nothing else would
// show it.

#include <string>

#include "kernels/integer.h"
#include "kernels/kernels.h"

namespace pinion::kernels {

// The GEMMs that kAmx computes on tiles, or the same GEMMs of another path.
struct TileProducts {
  void (*bf16)(const GemmArgs& args);
  void (*integer)(const IntLayout& layout, const IntGemmArgs& args);
};

// Multiplies a few tiles of each kind with both: bfloat16, integers of 8 and 4 bits, floats of 4;
// full tiles, tiles of fewer rows, blocks of fewer outputs, and columns that do not fill a step.
// Operands are whole numbers times powers of two, small enough that all sums are exact in float32,
// so the results must be equal whatever the order of summation. Empty if they are, else one
// sentence on the first element that differs. Takes about half a millisecond and, while it runs,
// 100 KiB of heap.
std::string CompareTileProducts(const TileProducts& tiles, const TileProducts& reference);

// Compares kAmx with kAvx512Bf16 and the scalar integer table in this way. kAmx must be usable.
std::string CheckAmx();

}  // namespace pinion::kernels
