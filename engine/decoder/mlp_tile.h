#pragma once

#include "engine/decoder/workspace.h"

namespace pinion {

// Floats of ThreadScratch::mlp_tile: kMlpTileRows rows of a gate and an up block; or, for kernels
// that pack the rows of a call of several blocks, half as many rows of up to eight blocks. 256 KiB,
// which stay in L2.
inline constexpr size_t kMlpTileBlocks = 8;
inline constexpr size_t kMlpTileFloats = kMlpTileRows / 2 * kMlpTileBlocks * kernels::kBlockN;

}  // namespace pinion
