#pragma once

// Keys and values as floats: with many rows they are widened once for all, as weights are in
// gemm_panels.inl.h, instead of by each tile of rows. Sums are the same, to the bit.

#include <type_traits>

#include "kernels/impl/attention_strip.inl.h"

namespace pinion::kernels::impl {
namespace {

// Types whose loads take several instructions.
template <typename Operand>
constexpr bool kWidens =
    std::is_same_v<typename Operand::X, float> && !std::is_same_v<Operand, OperandF32>;

// The operand after that: [elements along the reduced dimension][kWidenedColumns].
template <typename Operand>
struct Widened : Operand {
  static constexpr size_t kStepK = 1, kSubs = 1, kBytes = sizeof(float);
  template <bool half>
  static Vec Load(const std::byte* w, size_t) {
    return LoadWords<half>(w);
  }
  static Vec Spread(const float* x, size_t) { return Set(*x); }
};
constexpr size_t kWidenedColumns = kWide * kLanes;

// 32 KiB, which stay in L1 where vectors are that wide; others need half of it.
constexpr size_t kWidenedFloats = 8 * 1024;

// From so many rows on, all tiles are of kTileRows or one less.
constexpr size_t kWidenedRows = 24;
static_assert(kWidenedRows % kTileRows == 0 && kWidenedRows / kTileRows + 1 >= kTileRows - 1);

// Calls f.operator()<rows>(begin) for the tiles that make up `rows`, at least kWidenedRows.
template <typename F>
void ForFullTiles(size_t rows, F f) {
  const RowGroups tiles(rows, kTileRows);
  for (size_t tile = 0; tile < tiles.count; ++tile) {
    if (tiles.Size(tile) == kTileRows) {
      f.template operator()<kTileRows>(tiles.Begin(tile));
    } else {
      f.template operator()<kTileRows - 1>(tiles.Begin(tile));
    }
  }
}

// Widens one step: a vector at each of kWide addresses. Returns the end of the written elements.
template <typename Operand>
float* WidenStep(const std::byte* const (&w)[kWide], float* to) {
#pragma GCC unroll 4
  for (size_t sub = 0; sub < Operand::kSubs; ++sub, to += kWidenedColumns) {
#pragma GCC unroll 16
    for (int c = 0; c < kWide; ++c)
      Store(to + c * kLanes, Operand::template Load<false>(w[c], sub));
  }
  return to;
}

}  // namespace
}  // namespace pinion::kernels::impl
