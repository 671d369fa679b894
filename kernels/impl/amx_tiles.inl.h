#pragma once

// AMX's tiles: 16 rows of 64 bytes. All in assembly: the compiler does not allocate tile registers,
// and GCC 12's _tile_loadconfig tells it that only 8 bytes of the configuration are read, so stores
// to the rest may be dropped.

#include "kernels/impl/tiles.inl.h"

namespace pinion::kernels::impl {
namespace {

struct AmxTiles {
  static void Configure(const TileShape& shape) {
    asm volatile("ldtilecfg (%0)" ::"r"(&shape) : "memory");
  }
  static void Release() { asm volatile("tilerelease"); }
  template <int t>
  static void Zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(t));
  }
  template <int t>
  static void Load(const std::byte* from, size_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(t) : "memory");
  }
  template <int t>
  static void Store(std::byte* to, size_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(t) : "memory");
  }
};

// Pairs of bfloat16, summed in float32.
struct AmxPairs : AmxTiles {
  template <int sum, int a, int b>
  static void Dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(a), "i"(b));
  }
};

}  // namespace
}  // namespace pinion::kernels::impl
