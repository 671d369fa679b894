#pragma once

// GEMM over packed blocks. The weights are one long stream of steps (kernels.h), cut into chunks
// that stay in cache while all rows pass over them. Meanwhile the next chunk is prefetched, spread
// evenly over the tiles: with 4 to 32 rows memory and arithmetic take about equally long, and their
// times would add up if they alternated.

#include <type_traits>

#include "kernels/impl/tile.inl.h"
#include "kernels/kernels.h"

namespace pinion::kernels::impl {
namespace {

// A chunk stays in L1 (48 KiB on the CPU measured) while the rows pass over it. With few tiles
// memory sets the pace, and short chunks are better, because nothing hides the latency of a call's
// first one (8 rows: 8 % faster with 16 KiB). With many tiles long ones are better, because each
// chunk loads and stores the sums once (512 rows: 10 % faster with 32 KiB).
template <typename Operand>
constexpr size_t kMaxChunkBytes = 32 * 1024;
// An operand may name a longer one, which then stays in L2.
template <typename Operand>
requires requires { Operand::kMaxChunkBytes; }
constexpr size_t kMaxChunkBytes<Operand> = Operand::kMaxChunkBytes;
constexpr size_t kFewTiles = 3;
template <typename Operand>
constexpr size_t ChunkBytes(size_t tiles) {
  return tiles <= kFewTiles ? size_t{16} * 1024 : kMaxChunkBytes<Operand>;
}
// A single tile passes over a chunk once, so it prefetches only as far ahead as covers the latency
// of memory (200 ns at 40 GB/s).
constexpr size_t kPrefetchAheadBytes = 8 * 1024;
constexpr size_t kLineBytes = 64;

// The tile of an operand; operands with a tile of their own specialise this.
template <typename Operand, int kRows, int kColumns, int kPrefetch>
constexpr TileFn<Operand> kTile = Tile<Operand, kRows, kColumns, kPrefetch>;

// Its columns, in vectors; likewise.
template <typename Operand, int kRows>
constexpr int kColumnsOf = GemmColumns(kRows);

// The lines that a tile prefetches change nothing that it reads, adds or writes. With
// AddressSanitizer, which needs twice the compiler's time for all these variants, a tile prefetches
// none or the most.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kEveryPrefetch = false;
#else
constexpr bool kEveryPrefetch = true;
#endif

template <typename Operand, int kRows>
TileFn<Operand> TileWithPrefetch(size_t lines) {
  constexpr int kColumns = kColumnsOf<Operand, kRows>;
  if (lines == 0) return kTile<Operand, kRows, kColumns, 0>;
  if constexpr (kEveryPrefetch) {
    if (lines == 1) return kTile<Operand, kRows, kColumns, 1>;
    if (lines == 2) return kTile<Operand, kRows, kColumns, 2>;
  }
  return kTile<Operand, kRows, kColumns, 4>;
}

// kColumnsOf a tile of so many rows.
template <typename Operand>
size_t TileColumns(size_t rows) {
  constexpr int kOf[] = {kColumnsOf<Operand, 1>, kColumnsOf<Operand, 2>, kColumnsOf<Operand, 3>,
                         kColumnsOf<Operand, 4>, kColumnsOf<Operand, 5>, kColumnsOf<Operand, 6>};
  return static_cast<size_t>(kOf[rows - 1]);
}

template <typename Operand>
TileFn<Operand> GemmTile(size_t rows, size_t prefetch_lines) {
  static_assert(kTileRows == 6);
  switch (rows) {
    case 1:
      return TileWithPrefetch<Operand, 1>(prefetch_lines);
    case 2:
      return TileWithPrefetch<Operand, 2>(prefetch_lines);
    case 3:
      return TileWithPrefetch<Operand, 3>(prefetch_lines);
    case 4:
      return TileWithPrefetch<Operand, 4>(prefetch_lines);
    case 5:
      return TileWithPrefetch<Operand, 5>(prefetch_lines);
    default:
      return TileWithPrefetch<Operand, 6>(prefetch_lines);
  }
}

// Rows of activations in the operand's form: float32 or bfloat16 unchanged, or bfloat16 widened.
template <typename Operand, typename Activation>
struct RowSource {
  static constexpr size_t kMaxK =
      kMaxChunkBytes<Operand> / (kBlockN * Operand::kBytes) * Operand::kStepK;

  const Activation* x;
  size_t stride;

  // Rows [begin, begin + rows), columns [k, k + count); in `scratch` if they had to be widened.
  const typename Operand::X* Get(size_t begin, size_t rows, size_t k, size_t count,
                                 float (*scratch)[kMaxK], size_t& result_stride) const {
    const Activation* src = x + begin * stride + k;
    if constexpr (std::is_same_v<Activation, typename Operand::X>) {
      result_stride = stride;
      return src;
    } else {
      for (size_t r = 0; r < rows; ++r) {
        for (size_t i = 0; i < count; i += kLanes) {
          Store(scratch[r] + i, WidenBf16(src + r * stride + i));
        }
      }
      result_stride = kMaxK;
      return scratch[0];
    }
  }
};

// The lines of each step that unit `unit` of `units` prefetches: [begin, end).
struct Share {
  size_t begin, end;
  Share(size_t lines, size_t unit, size_t units)
      : begin(Sum(lines, unit, units)), end(Sum(lines, unit + 1, units)) {}
  static size_t Sum(size_t lines, size_t unit, size_t units) {
    const size_t extra = lines % units;
    return unit * (lines / units) + (unit < extra ? unit : extra);
  }
};

// Multiplies all rows by `steps` steps of one block, from column k of x on.
template <typename Operand, typename Activation>
void GemmChunk(const RowSource<Operand, Activation>& source, const GemmArgs& args,
               const RowGroups& groups, const std::byte* w, size_t steps, size_t k, float* y) {
  constexpr size_t kStepBytes = kBlockN * Operand::kBytes;
  alignas(64) float scratch[kTileRows][RowSource<Operand, Activation>::kMaxK];
  for (size_t group = 0; group < groups.count; ++group) {
    const size_t row = groups.Begin(group), rows = groups.Size(group);
    const size_t columns = static_cast<size_t>(GemmColumns(static_cast<int>(rows))) * kLanes;
    const size_t passes = kBlockN / columns, units = groups.count * passes;
    const std::byte* next = w + (units == 1 ? kPrefetchAheadBytes : steps * kStepBytes);

    TileArgs<Operand> tile = {.segments = 1, .w_stride = kStepBytes};
    tile.x = source.Get(row, rows, k, steps * Operand::kStepK, scratch, tile.x_stride);
    tile.y_stride = args.ldy;
    tile.accumulate = k > 0;
    tile.steps = &steps;
    for (size_t pass = 0; pass < passes; ++pass) {
      const std::byte* w_pass = w + pass * columns * Operand::kBytes;
      const Share share(kStepBytes / kLineBytes, group * passes + pass, units);
      tile.w = &w_pass;
      tile.y = y + row * args.ldy + pass * columns;
      // In the order of addresses, which the hardware's own prefetchers follow.
      const std::byte* prefetch = next + share.begin * steps * kLineBytes;
      tile.prefetch = &prefetch;
      tile.prefetch_stride = (share.end - share.begin) * kLineBytes;
      tile.prefetch_to = args.prefetch;
      const bool asks = args.prefetch != Prefetch::kNone;
      GemmTile<Operand>(rows, asks ? share.end - share.begin : 0)(tile);
    }
  }
}

template <typename Operand, typename Activation>
void Gemm(const GemmArgs& args) {
  using Source = RowSource<Operand, Activation>;
  const Source source{static_cast<const Activation*>(args.x), args.row_stride()};
  const RowGroups groups(args.rows, kTileRows);
  // Chunks are whole units of kPadK, so that rows can be widened a vector at a time.
  constexpr size_t kUnitBytes = kPadK / Operand::kStepK * kBlockN * Operand::kBytes;
  const RowGroups chunks(args.k_padded / kPadK, ChunkBytes<Operand>(groups.count) / kUnitBytes);
  const std::byte* w = args.w;
  for (size_t block = 0; block < args.blocks; ++block) {
    for (size_t chunk = 0; chunk < chunks.count; ++chunk) {
      const size_t steps = chunks.Size(chunk) * (kPadK / Operand::kStepK);
      const size_t k = chunks.Begin(chunk) * kPadK;
      GemmChunk(source, args, groups, w, steps, k, args.y + block * kBlockN);
      w += steps * kBlockN * Operand::kBytes;
    }
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
