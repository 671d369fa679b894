#pragma once

// Products with weights in e4m3 for a vector ISA: tiles of rows pass over chunks of K that stay in
// L1, as in gemm.inl.h. A chunk lies within a group of columns. If few tiles take all rows, each of
// them turns bytes into floats in registers; otherwise the chunk is converted into a buffer once
// for all tiles. Include the ISA's operands first (e4m3_*.inl.h):
//
//   X, kSubs          the other operand's elements; multiplications that a step (two columns) takes
//   Fetch(w, load)    load `load` of a step at w: the weights of two vectors of outputs
//   Weights<sub>(bytes, v)   of vector v of a load, for multiplication `sub`
//   OutputOf(load, v) the first output of that vector
//   Spread, MultiplyAdd as in operand.inl.h
//   kUnit             the true value of a byte over its value in MultiplyAdd
//   kMostTiles        up to which converting in registers, once for each, takes less time

#include "kernels/e4m3.h"
#include "kernels/impl/e4m3_tables.h"
#include "kernels/impl/gemm.inl.h"

namespace pinion::kernels::impl {
namespace {

constexpr size_t kE4m3Loads = kBlockN / (2 * kLanes);
// Columns of a chunk, at most, converted or not: 16 KiB of bfloat16 or float32, 8 KiB of bytes.
template <typename Operand>
constexpr size_t kE4m3Chunk = 128 / Operand::kSubs;
constexpr size_t kMostE4m3Chunk = 128;

// Calls body.template operator()<0>() to <count - 1>().
template <size_t count, typename Body>
[[gnu::always_inline]] inline void ForSubs(const Body& body) {
  body.template operator()<0>();
  if constexpr (count == 2) body.template operator()<1>();
}

// Weights that were converted: [steps][kSubs][64 outputs], four bytes each.
template <typename Operand>
struct Converted : Operand {
  static constexpr size_t kStepBytes = Operand::kSubs * kBlockN * sizeof(float);
  static constexpr float kUnit = Operand::kUnit;
  static const std::byte* Fetch(const std::byte* w, size_t load) {
    return w + load * 2 * kLanes * sizeof(float);
  }
  template <size_t sub>
  static Vec Weights(const std::byte* at, size_t v) {
    return LoadWords<false>(at + (sub * kBlockN + v * kLanes) * sizeof(float));
  }
  static size_t OutputOf(size_t load, size_t v) { return (2 * load + v) * kLanes; }
};

template <typename X>
struct E4m3Tile {
  const X* x = nullptr;  // [rows], at the chunk's first column
  size_t x_stride = 0;
  const std::byte* w = nullptr;
  size_t steps = 0;
  size_t first_load = 0;  // of a step
  float* y = nullptr;     // [rows][64]
  size_t y_stride = 0;
  bool accumulate = false;
  const float* scales = nullptr;  // [64]
  const std::byte* prefetch = nullptr;
  size_t prefetch_stride = 0;
  Prefetch prefetch_to = Prefetch::kNear;
};

// y = or += scales * (x w), for kRows rows and kLoads loads of each step.
template <typename Operand, int kRows, int kLoads, int kPrefetch>
void RunE4m3Tile(const E4m3Tile<typename Operand::X>& tile) {
  Vec sums[kRows][kLoads][2];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int l = 0; l < kLoads; ++l) sums[r][l][0] = sums[r][l][1] = Set(0);
  }
  const typename Operand::X* x = tile.x;
  const std::byte *w = tile.w, *prefetch = tile.prefetch;
  for (size_t step = tile.steps; step > 0; --step) {
    PrefetchLines<kPrefetch, 3>(prefetch, tile.prefetch_to);
#pragma GCC unroll 16
    for (int l = 0; l < kLoads; ++l) {
      const auto bytes = Operand::Fetch(w, tile.first_load + static_cast<size_t>(l));
      ForSubs<Operand::kSubs>([&]<size_t sub>() {
        const Vec first = Operand::template Weights<sub>(bytes, 0);
        const Vec second = Operand::template Weights<sub>(bytes, 1);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          const Vec spread = Operand::Spread(x + r * tile.x_stride, sub);
          sums[r][l][0] = Operand::MultiplyAdd(first, spread, sums[r][l][0]);
          sums[r][l][1] = Operand::MultiplyAdd(second, spread, sums[r][l][1]);
        }
      });
    }
    x += 2;
    w += Operand::kStepBytes;
    prefetch += tile.prefetch_stride;
  }
#pragma GCC unroll 16
  for (int l = 0; l < kLoads; ++l) {
#pragma GCC unroll 2
    for (size_t v = 0; v < 2; ++v) {
      const size_t output = Operand::OutputOf(tile.first_load + static_cast<size_t>(l), v);
      const Vec scale = Load(tile.scales + output) * Set(Operand::kUnit);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        float* y = tile.y + r * tile.y_stride + output;
        Store(y, Fma(sums[r][l][v], scale, tile.accumulate ? Load(y) : Set(0)));
      }
    }
  }
}

// The fewest registers' worth of loads of a step for this many rows.
constexpr int E4m3LoadsOf(int rows) { return GemmColumns(rows) / 2; }

template <typename Operand>
using E4m3TileFn = void (*)(const E4m3Tile<typename Operand::X>&);

template <typename Operand, int kRows>
E4m3TileFn<Operand> E4m3TileWithPrefetch(size_t lines) {
  constexpr int kLoads = E4m3LoadsOf(kRows);
  if (lines == 0) return RunE4m3Tile<Operand, kRows, kLoads, 0>;
  if constexpr (kEveryPrefetch) {
    if (lines == 1) return RunE4m3Tile<Operand, kRows, kLoads, 1>;
  }
  return RunE4m3Tile<Operand, kRows, kLoads, 2>;
}

template <typename Operand>
E4m3TileFn<Operand> E4m3TileFor(size_t rows, size_t lines) {
  switch (rows) {
    case 1:
      return E4m3TileWithPrefetch<Operand, 1>(lines);
    case 2:
      return E4m3TileWithPrefetch<Operand, 2>(lines);
    case 3:
      return E4m3TileWithPrefetch<Operand, 3>(lines);
    case 4:
      return E4m3TileWithPrefetch<Operand, 4>(lines);
    case 5:
      return E4m3TileWithPrefetch<Operand, 5>(lines);
    default:
      return E4m3TileWithPrefetch<Operand, 6>(lines);
  }
}

// `columns` columns of one block, from column k on; `ahead`: bytes to the weights that are
// prefetched meanwhile.
struct E4m3Chunk {
  const std::byte* w;
  size_t k, columns, ahead;
  const float* scales;
};

// Activations as the operand reads them.
template <typename Operand, typename Activation>
const typename Operand::X* E4m3Rows(const Activation* x, size_t stride, size_t rows, size_t columns,
                                    float (*widened)[kMostE4m3Chunk], size_t& result_stride) {
  if constexpr (std::is_same_v<Activation, typename Operand::X>) {
    result_stride = stride;
    return x;
  } else {
    for (size_t r = 0; r < rows; ++r) {
      size_t i = 0;
      for (; i + kLanes <= columns; i += kLanes)
        Store(widened[r] + i, WidenBf16(x + r * stride + i));
      for (; i < columns; ++i) widened[r][i] = Widen(x[r * stride + i]);
    }
    result_stride = kMostE4m3Chunk;
    return widened[0];
  }
}

// Multiplies all rows by a chunk whose weights, in the operand's form, are at w.
template <typename Operand, typename Activation>
void RunE4m3Chunk(const IntLayout& layout, const E4m3GemmArgs& args, const RowGroups& tiles,
                  const E4m3Chunk& chunk, const std::byte* w, float* y) {
  alignas(64) float widened[kTileRows][kMostE4m3Chunk];
  const size_t k_padded = layout.k_padded();
  for (size_t at = 0; at < tiles.count; ++at) {
    const size_t row = tiles.Begin(at), rows = tiles.Size(at);
    const size_t loads = static_cast<size_t>(E4m3LoadsOf(static_cast<int>(rows)));
    const size_t passes = kE4m3Loads / loads, units = tiles.count * passes;
    E4m3Tile<typename Operand::X> tile = {
        .steps = chunk.columns / 2, .y = y + row * args.ldy, .y_stride = args.ldy};
    tile.x = E4m3Rows<Operand>(static_cast<const Activation*>(args.x) + row * k_padded + chunk.k,
                               k_padded, rows, chunk.columns, widened, tile.x_stride);
    tile.w = w;
    tile.accumulate = chunk.k > 0;
    tile.scales = chunk.scales;
    for (size_t pass = 0; pass < passes; ++pass) {
      const Share share(kE4m3StepBytes / kLineBytes, at * passes + pass, units);
      tile.first_load = pass * loads;
      tile.prefetch = chunk.w + chunk.ahead + share.begin * tile.steps * kLineBytes;
      tile.prefetch_stride = (share.end - share.begin) * kLineBytes;
      tile.prefetch_to = args.prefetch;
      const bool asks = args.prefetch != Prefetch::kNone;
      E4m3TileFor<Operand>(rows, asks ? share.end - share.begin : 0)(tile);
    }
  }
}

template <typename Operand>
void ConvertChunk(const E4m3Chunk& chunk, std::byte* dst) {
  const std::byte* w = chunk.w;
  for (size_t step = chunk.columns / 2; step > 0; --step) {
#pragma GCC unroll 16
    for (size_t load = 0; load < kE4m3Loads; ++load) {
      const auto bytes = Operand::Fetch(w, load);
      ForSubs<Operand::kSubs>([&]<size_t sub>() {
#pragma GCC unroll 2
        for (size_t v = 0; v < 2; ++v)
          Store(reinterpret_cast<float*>(dst) + sub * kBlockN + Operand::OutputOf(load, v),
                Operand::template Weights<sub>(bytes, v));
      });
    }
    w += kE4m3StepBytes;
    dst += Converted<Operand>::kStepBytes;
  }
}

// One block: all its chunks.
template <typename Operand, typename Activation>
void E4m3Block(const IntLayout& layout, const E4m3GemmArgs& args, const RowGroups& tiles,
               const std::byte* block, float* y) {
  alignas(64) std::byte buffer[kE4m3Chunk<Operand> / 2 * Converted<Operand>::kStepBytes];
  const size_t k_padded = layout.k_padded();
  const size_t width = layout.whole_rows() ? k_padded : layout.group;
  const size_t group_bytes = layout.group_bytes(), code_bytes = layout.code_bytes(width);
  const size_t ahead = layout.whole_rows()
                           ? kPrefetchAheadBytes
                           : (kPrefetchAheadBytes + group_bytes - 1) / group_bytes * group_bytes;
  const std::byte* w = block;
  for (size_t first = 0; first < k_padded; first += width, w += group_bytes) {
    const size_t last = first + width < k_padded ? first + width : k_padded;
    const auto* scales = reinterpret_cast<const float*>(w + code_bytes);
    // Tiles prefetch only bytes; the scales behind them are prefetched here.
    const size_t asked = args.prefetch == Prefetch::kNone ? 0 : group_bytes;
    for (size_t at = code_bytes; at < asked; at += kLineBytes) __builtin_prefetch(w + ahead + at);
    for (size_t k = first; k < last; k += kE4m3Chunk<Operand>) {
      const size_t columns = last - k < kE4m3Chunk<Operand> ? last - k : kE4m3Chunk<Operand>;
      const E4m3Chunk chunk{w + layout.code_bytes(k - first), k, columns, ahead, scales};
      if (tiles.count <= Operand::kMostTiles) {
        RunE4m3Chunk<Operand, Activation>(layout, args, tiles, chunk, chunk.w, y);
      } else {
        ConvertChunk<Operand>(chunk, buffer);
        RunE4m3Chunk<Converted<Operand>, Activation>(layout, args, tiles, chunk, buffer, y);
      }
    }
  }
}

template <typename Operand, typename Activation>
void E4m3Gemm(const IntLayout& layout, const E4m3GemmArgs& args) {
  const RowGroups tiles(args.rows, kTileRows);
  for (size_t block = 0; block < args.blocks; ++block)
    E4m3Block<Operand, Activation>(layout, args, tiles, args.w + block * layout.block_bytes(),
                                   args.y + block * kBlockN);
}

}  // namespace
}  // namespace pinion::kernels::impl
