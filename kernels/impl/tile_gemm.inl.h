#pragma once

// GEMM on matrix tiles (tiles.inl.h). With up to 16 rows, one tile of x is multiplied by all 64
// columns of a block, and weights stream at the pace of memory. With more, groups of 32 rows pass
// over a piece of a block while the next piece is prefetched, spread evenly over the steps.
// Activations should come from L2, and weights from memory once for all rows. So rows are cut into
// parts of at most kPartRows. If a part's activations fit half of L2, it is multiplied block by
// block. If K is deeper, all blocks are multiplied by one slice of K, then by the next. Each slice
// is first copied so that its tiles are contiguous: in place, rows a power of two apart would evict
// each other from L2. A call of few blocks does not repay the copy: see TileCut.

#include "kernels/impl/tiles.inl.h"
#include "kernels/kernels.h"

namespace pinion::kernels::impl {
namespace {

// Half of L2 on the CPUs with AMX so far: 2048 bfloat16 or 4096 int8 of 256 rows, which need
// weights at 12 GB/s for 3 TFLOP/s or 6 TOP/s.
constexpr size_t kBytesOfX = 1 << 20;
constexpr size_t kPartRows = 256, kFewBlocksRows = kPartRows / 2;
// Steps of a piece of weights: a piece of 64 columns and the one prefetched after it fit a quarter
// of L2. Every piece but the first loads its sums, some 150 clocks beside 64 per step.
constexpr size_t kPieceSteps = 64;
// Steps of a copied slice, which takes half of kBytesOfX: the rest is left for sums, which every
// slice loads and stores.
constexpr size_t kSliceSteps = 32;
// Blocks that a slice should be multiplied by: copying it from L3, at 29 GB/s, takes as long as
// multiplying it by one and a half blocks.
constexpr size_t kDeepBlocks = 16;
// Covers the latency of memory at a core's rate, like kProbeAhead; in steps.
constexpr size_t kStreamAheadSteps = 8192 / kTileBlockBytes;

struct TileGemmArgs {
  const std::byte* x;  // [rows][steps * 64 bytes], x_stride bytes from row to row
  size_t x_stride;
  const std::byte* w;  // `blocks` packed blocks of `steps` steps each
  size_t w_stride;     // bytes from block to block
  std::byte* y;        // [rows][blocks * 64] sums of 4 bytes, y_stride bytes from row to row
  size_t y_stride;
  size_t rows, steps, blocks;
};

inline bool StaysInCache(size_t rows, size_t steps) {
  return rows * steps * kTileBytes <= kBytesOfX;
}

// The best cut of a product into calls. A call of few blocks gets few enough rows to stay in cache,
// but not so few that reading weights for each part takes longer than reading rows again: 128 rows
// need weights at 13 GB/s for half of the peak.
inline ProductCut TileCut(size_t rows, size_t steps) {
  const size_t part = rows < kPartRows ? rows : kPartRows;
  if (StaysInCache(part, steps)) return {kPartRows, 1, kPartRows};
  return {kPartRows, kDeepBlocks, kFewBlocksRows};
}

// Rows of x that are a multiple of this apart share one or two of L1's 64 sets, of 12 lines each:
// the 32 lines of a step evict each other if they are prefetched.
constexpr size_t kCrowdedPitch = 2048;
inline bool IsCrowded(size_t pitch) { return pitch % kCrowdedPitch == 0; }

// The best distance of rows in bytes. Deeper rows are always cut into slices, which are copied
// anyway; few rows are not worth a copy.
inline size_t TileStride(size_t rows, size_t steps) {
  const size_t pitch = steps * kTileBytes;
  const bool pays =
      rows > kTileGroupRows && IsCrowded(pitch) && StaysInCache(kFewBlocksRows, steps);
  return pays ? pitch + kTileBytes : pitch;
}

// Steps, cut into the fewest parts of at most `most`, as even as possible.
struct EvenSteps {
  size_t total, count;
  constexpr EvenSteps(size_t total, size_t most) : total(total), count((total + most - 1) / most) {}
  constexpr size_t Begin(size_t part) const { return total * part / count; }
  constexpr size_t Size(size_t part) const { return Begin(part + 1) - Begin(part); }
};

// Copies `rows` rows, starting at x, to [rows / 16][steps][16][64 bytes].
inline void GatherTiles(const std::byte* x, size_t x_stride, size_t rows, size_t steps,
                        std::byte* tiles) {
  for (size_t row = 0; row < rows; ++row, x += x_stride) {
    std::byte* dst =
        tiles + (row / kTileHeight * steps * kTileHeight + row % kTileHeight) * kTileBytes;
    for (size_t step = 0; step < steps; ++step)
      __builtin_memcpy(dst + step * kTileSize, x + step * kTileBytes, kTileBytes);
  }
}

// One call. finish(block, row, rows) is called once for each group of rows of a block whose sums
// are complete; one group late, so that vectors finish it while tiles multiply the next.
template <typename Tiles, typename Finish>
class TileProduct {
 public:
  TileProduct(const TileGemmArgs& args, const Finish& finish) : args_(args), finish_(finish) {}

  void Run() {
    if (args_.rows <= kTileHeight) {
      Stream();
    } else {
      const ProductParts parts(args_.rows, kPartRows);
      for (size_t i = 0; i < parts.count; ++i) {
        const bool last = i + 1 == parts.count;
        const Part part = {parts.Begin(i), parts.Size(i), Block(last ? args_.blocks : 0)};
        StaysInCache(part.rows, args_.steps) ? BlockByBlock(part) : SliceBySlice(part);
      }
    }
    FinishLast();
  }

 private:
  // Rows [row, row + rows), and the weights that are multiplied after them.
  struct Part {
    size_t row, rows;
    const std::byte* after;
  };
  // Steps [step, step + steps) of a block, and the weights of the next piece.
  struct Piece {
    size_t block, step, steps;
    const std::byte* next;
  };
  struct Sums {
    size_t block, row, rows;
  };

  const std::byte* Block(size_t block) const { return args_.w + block * args_.w_stride; }
  const std::byte* At(size_t block, size_t step) const {
    return Block(block) + step * kTileBlockBytes;
  }
  std::byte* SumsAt(size_t block, size_t row) const {
    return args_.y + row * args_.y_stride + block * 4 * kTileBytes;
  }

  void FinishLast() {
    if (last_.rows > 0) finish_(last_.block, last_.row, last_.rows);
    last_.rows = 0;
  }
  void Whole(const Sums& sums) {
    FinishLast();
    last_ = sums;
  }

  // Reads every step of w once, in order, with all its 64 columns.
  void Stream() {
    for (size_t block = 0; block < args_.blocks; ++block) {
      tiles_.RunBlock({.x = RowsAt(args_.x, args_.x_stride),
                       .y = SumsAt(block, 0),
                       .y_stride = args_.y_stride,
                       .w = {Block(block), kTileBlockBytes},
                       .w_pitch = kTileRowPitch,
                       .steps = args_.steps,
                       .accumulate = false,
                       .prefetch = {At(block, kStreamAheadSteps)},
                       .lines = kTileBlockBytes / kTileBytes},
                      args_.rows);
      Whole({block, 0, args_.rows});
    }
  }

  void BlockByBlock(const Part& part) {
    const EvenSteps pieces(args_.steps, kPieceSteps);
    for (size_t block = 0; block < args_.blocks; ++block) {
      for (size_t i = 0; i < pieces.count; ++i) {
        const size_t step = pieces.Begin(i);
        const std::byte* next = i + 1 < pieces.count       ? At(block, pieces.Begin(i + 1))
                                : block + 1 < args_.blocks ? Block(block + 1)
                                                           : part.after;
        const std::byte* x = args_.x + part.row * args_.x_stride + step * kTileBytes;
        RunPiece(part, {block, step, pieces.Size(i), next}, RowsAt(x, args_.x_stride));
      }
    }
  }

  // Not inlined, so that only this path pays for a slice on the stack.
  [[gnu::noinline]] void SliceBySlice(const Part& part) {
    alignas(64) std::byte slice[kPartRows * kSliceSteps * kTileBytes];
    const EvenSteps slices(args_.steps, kSliceSteps);
    for (size_t i = 0; i < slices.count; ++i) {
      const size_t step = slices.Begin(i), steps = slices.Size(i);
      const std::byte* x = args_.x + part.row * args_.x_stride + step * kTileBytes;
      GatherTiles(x, args_.x_stride, part.rows, steps, slice);
      for (size_t block = 0; block < args_.blocks; ++block) {
        const std::byte* next = block + 1 < args_.blocks ? At(block + 1, step)
                                : i + 1 < slices.count   ? At(0, slices.Begin(i + 1))
                                                         : part.after;
        RunPiece(part, {block, step, steps, next},
                 {slice, kTileBytes, steps * kTileSize, kTileSize});
      }
    }
  }

  // Multiplies all rows of a part by one piece of weights.
  void RunPiece(const Part& part, const Piece& piece, TileRows x) {
    const size_t groups = (part.rows + kTileGroupRows - 1) / kTileGroupRows;
    const size_t lines = (kTileBlockBytes / kTileBytes + groups - 1) / groups;
    for (size_t group = 0; group < groups; ++group) {
      const size_t row = part.row + group * kTileGroupRows, left = part.row + part.rows - row;
      const size_t rows = left < kTileGroupRows ? left : kTileGroupRows;
      const std::byte* ask = piece.next + group * lines * piece.steps * kTileBytes;
      tiles_.RunBlock({.x = x,
                       .y = SumsAt(piece.block, row),
                       .y_stride = args_.y_stride,
                       .w = {At(piece.block, piece.step), kTileBlockBytes},
                       .w_pitch = kTileRowPitch,
                       .steps = piece.steps,
                       .accumulate = piece.step > 0,
                       .prefetch = {ask},
                       .lines = lines,
                       .prefetches_next = !IsCrowded(x.pitch)},
                      rows);
      if (piece.step + piece.steps == args_.steps) Whole({piece.block, row, rows});
      x.first += 2 * x.tile;
    }
  }

  const TileGemmArgs& args_;
  const Finish& finish_;
  TileUnit<Tiles> tiles_;
  Sums last_ = {};  // complete, but finish_ not yet called; rows 0: none
};

template <typename Tiles, typename Finish>
void TileGemm(const TileGemmArgs& args, const Finish& finish) {
  TileProduct<Tiles, Finish>(args, finish).Run();
}

// Leaves the sums as they are.
template <typename Tiles>
void TileGemm(const TileGemmArgs& args) {
  TileGemm<Tiles>(args, [](size_t, size_t, size_t) {});
}

}  // namespace
}  // namespace pinion::kernels::impl
