// AMX: tiles of 16 rows of 64 bytes. As assembly throughout: the compiler owns no tile register,
// and GCC 12's _tile_loadconfig tells it that only 8 bytes of the configuration are read.

#include "kernels/impl/probes.h"

namespace pinion::kernels::impl {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64, "as LDTILECFG reads it");

}  // namespace

// Four sums: a product takes 52 clocks and one starts every 16.
uint64_t ProbeAmxTiles(size_t steps) {
  constexpr uint64_t kProducts = 4, kOperations = 2 * 16 * 16 * 32;
  const TileConfig config;
  asm volatile("ldtilecfg (%0)" ::"r"(&config) : "memory");
  asm volatile(
      "tilezero %%tmm0\n tilezero %%tmm1\n tilezero %%tmm2\n tilezero %%tmm3\n"
      "tilezero %%tmm4\n tilezero %%tmm5\n" ::);
  for (size_t step = 0; step < steps; ++step) {
    asm volatile(
        "tdpbf16ps %%tmm5, %%tmm4, %%tmm0\n tdpbf16ps %%tmm5, %%tmm4, %%tmm1\n"
        "tdpbf16ps %%tmm5, %%tmm4, %%tmm2\n tdpbf16ps %%tmm5, %%tmm4, %%tmm3\n" ::);
  }
  asm volatile("tilerelease");
  return steps * kProducts * kOperations;
}

}  // namespace pinion::kernels::impl
