#pragma once

// Peak rates of tiles, for any tile operations (tiles.inl.h).

#include "kernels/impl/tiles.inl.h"

namespace pinion::kernels::impl {
namespace {

constexpr uint64_t kProbeProducts = 4;  // per step: 52 clocks of latency, one starts every 16

// Products of registers alone. operations: those of one product.
template <typename Tiles>
uint64_t ProbeDots(size_t steps, uint64_t operations) {
  Tiles::Configure(TileShape());
  ForEach<6>([]<int t>() { Tiles::template Zero<t>(); });
  for (size_t step = 0; step < steps; ++step) {
    ForEach<kProbeProducts>([]<int sum>() { Tiles::template Dot<sum, 4, 5>(); });
  }
  Tiles::Release();
  return steps * kProbeProducts * operations;
}

// Every four products load two tiles of a and two of b, like a GEMM with four sums. Both are read
// again and again; their sizes are multiples of two tiles.
template <typename Tiles>
uint64_t ProbeLoadedDots(const std::byte* a, size_t a_bytes, const std::byte* b, size_t b_bytes,
                         size_t steps, uint64_t operations) {
  Tiles::Configure(TileShape());
  ForEach<kProbeProducts>([]<int t>() { Tiles::template Zero<t>(); });
  TilePass pass = {};
  pass.x = {a, kTileBytes, kTileSize};
  pass.w_pitch = kTileBytes;
  pass.w_tile = kTileSize;
  Idle idle;
  size_t at_a = 0, at_b = 0;
  for (size_t step = 0; step < steps; ++step) {
    AddStep<Tiles, 2, 2>(pass, a + at_a, b + at_b, idle);
    at_a = at_a + 2 * kTileSize < a_bytes ? at_a + 2 * kTileSize : 0;
    at_b = at_b + 2 * kTileSize < b_bytes ? at_b + 2 * kTileSize : 0;
  }
  Tiles::Release();
  return steps * kProbeProducts * operations;
}

}  // namespace
}  // namespace pinion::kernels::impl
