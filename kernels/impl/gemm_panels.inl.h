#pragma once

// GEMM of many rows and several blocks in float32: the sums of gemm.inl.h, to the bit, but of
// operands in the form in which tiles read them with the fewest instructions beside their
// multiply-adds. Each piece of weights is widened into L1, once for all rows. Activations are
// packed in the order in which tiles read them, once for all blocks of a call: a slab of K at a
// time, which stays in L2.
//
// On an Emerald Rapids core without AVX512_BF16 these products reach 80 to 90 % of the peak, those
// of gemm.inl.h 69 to 84 %; while a neighbour on the same core takes half of the instructions'
// slots, 70 to 75 and 58 to 66 % (512 rows of the 0.5B shape: pinion-bench
// --benchmark_filter='gemm/avx512/.*/0.5b.(gate_up|down)/512/real_time/threads:1').

#include "kernels/impl/gemm.inl.h"

namespace pinion::kernels::impl {
namespace {

// From so many rows on. Each tile has kTileRows then, or one less. With 32 rows of bfloat16 or
// float32 the products of gemm.inl.h take up to 5 % less time, with 32 rows of float16, which takes
// more instructions to widen, 12 to 20 % more.
template <typename Operand>
constexpr size_t kManyRows = 40;
template <>
constexpr size_t kManyRows<OperandF16> = 20;
// Packing a tile of activations takes a fifth of the time of its product with one block.
constexpr size_t kPackedBlocks = 4;
// A slab of all rows is half of the smallest L2: 512 KiB of float32 on CPUs with AVX-512, 128 KiB
// on others. Each slab but the first loads the sums of the one before it.
constexpr size_t kPanelRows = 256, kSlabFloats = (kLanes == 16 ? 128 : 32) * 1024;
// A piece of widened weights is 32 KiB, which stay in L1. Each piece but the first loads the sums
// of the one before it, which shorter ones make too much of. Weights that are float32 already come
// from L2, in longer pieces.
template <typename Operand>
constexpr size_t kPieceK = 128;
template <>
constexpr size_t kPieceK<OperandF32> = 512;
// Columns of one row that lie together in a slab, and that the tile's loop takes at a time.
constexpr size_t kFours = 4;

inline Vec Floats(const float* p) { return Load(p); }
inline Vec Floats(const Bf16* p) { return WidenBf16(p); }

// `rows` rows of activations as [columns / 4][rows][4].
template <typename Activation>
void PackRows(const Activation* x, size_t stride, size_t rows, size_t columns, float* dst) {
  for (size_t i = 0; i < columns; i += kLanes, dst += rows * kLanes) {
    for (size_t r = 0; r < rows; ++r)
      StoreFours(dst + r * kFours, rows * kFours, Floats(x + r * stride + i));
  }
}

// Steps of weights as [steps * kStepK][64] float32.
template <typename Operand>
void WidenPiece(const std::byte* w, size_t steps, float* dst) {
  for (; steps > 0; --steps, w += kBlockN * Operand::kBytes) {
#pragma GCC unroll 2
    for (size_t sub = 0; sub < Operand::kSubs; ++sub, dst += kBlockN) {
#pragma GCC unroll 16
      for (size_t i = 0; i < kBlockN; i += kLanes)
        Store(dst + i, Operand::template Load<false>(w + i * Operand::kBytes, sub));
    }
  }
}

struct PanelTile {
  const float* x = nullptr;  // [columns / 4][rows][4]
  const float* w = nullptr;  // [columns][64], from the tile's first output on
  size_t columns = 0;
  float* y = nullptr;
  size_t y_stride = 0;                  // elements
  bool accumulate = false;              // add to y instead of overwriting it
  const std::byte* prefetch = nullptr;  // into L2: a line for each four columns
  size_t prefetch_stride = 0;           // bytes from one of these to the next
};

template <int kRows>
void RunPanelTile(const PanelTile& of) {
  constexpr int kColumns = GemmColumns(kRows);
  const PanelTile tile = of;
  Vec sums[kRows][kColumns];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c)
      sums[r][c] = tile.accumulate ? Load(tile.y + r * tile.y_stride + c * kLanes) : Set(0);
  }
  const float *x = tile.x, *w = tile.w;
  const std::byte* prefetch = tile.prefetch;
  for (size_t four = tile.columns / kFours; four > 0; --four) {
    __builtin_prefetch(prefetch, 0, 2);
#pragma GCC unroll 4
    for (size_t k = 0; k < kFours; ++k) {
      Vec weights[kColumns];
#pragma GCC unroll 16
      for (int c = 0; c < kColumns; ++c) weights[c] = Load(w + k * kBlockN + c * kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const Vec spread = Set(x[r * kFours + k]);
#pragma GCC unroll 16
        for (int c = 0; c < kColumns; ++c) sums[r][c] = Fma(weights[c], spread, sums[r][c]);
      }
    }
    x += kRows * kFours;
    w += kFours * kBlockN;
    prefetch += tile.prefetch_stride;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) Store(tile.y + r * tile.y_stride + c * kLanes, sums[r][c]);
  }
}

// Multiplies rows [row, row + rows) of x, at most kPanelRows.
template <typename Operand, typename Activation>
class PanelProduct {
 public:
  PanelProduct(const GemmArgs& args, size_t row, size_t rows)
      : args_(args), row_(row), tiles_(rows, kTileRows) {}

  void Run() {
    const RowGroups slabs(args_.k_padded / kPadK, kSlabFloats / tiles_.rows / kPadK);
    for (size_t i = 0; i < slabs.count; ++i) {
      const Columns slab = {slabs.Begin(i) * kPadK, slabs.Size(i) * kPadK};
      for (size_t tile = 0; tile < tiles_.count; ++tile) {
        const auto* x = static_cast<const Activation*>(args_.x) + slab.begin;
        PackRows(x + (row_ + tiles_.Begin(tile)) * args_.row_stride(), args_.row_stride(),
                 tiles_.Size(tile), slab.count, x_ + tiles_.Begin(tile) * slab.count);
      }
      for (size_t block = 0; block < args_.blocks; ++block) RunBlock(block, slab);
    }
  }

 private:
  static constexpr size_t kColumnBytes = kBlockN * Operand::kBytes / Operand::kStepK;
  static constexpr size_t kOutputs = static_cast<size_t>(GemmColumns(kTileRows)) * kLanes;
  static_assert(GemmColumns(kTileRows) == GemmColumns(kTileRows - 1));

  struct Columns {
    size_t begin, count;
  };

  const std::byte* W(size_t block, size_t k) const {
    return args_.w + (block * args_.k_padded + k) * kColumnBytes;
  }

  // While all rows pass over a piece, the next one is prefetched, spread evenly over the tiles.
  void RunBlock(size_t block, Columns slab) {
    const RowGroups pieces(slab.count / kPadK, kPieceK<Operand> / kPadK);
    for (size_t i = 0; i < pieces.count; ++i) {
      const size_t k = pieces.Begin(i) * kPadK, columns = pieces.Size(i) * kPadK;
      const std::byte *w = W(block, slab.begin + k), *after = w + columns * kColumnBytes;
      PanelTile piece = {.columns = columns, .y_stride = args_.ldy};
      piece.accumulate = slab.begin + k > 0;
      piece.prefetch = i + 1 < pieces.count ? after : W(block + 1, slab.begin);
      if constexpr (std::is_same_v<Operand, OperandF32>) {
        piece.w = reinterpret_cast<const float*>(w);
      } else {
        WidenPiece<Operand>(w, columns / Operand::kStepK, w_);
        piece.w = w_;
      }
      for (size_t tile = 0; tile < tiles_.count; ++tile) {
        piece.x = x_ + tiles_.Begin(tile) * slab.count + k * tiles_.Size(tile);
        piece.y = args_.y + (row_ + tiles_.Begin(tile)) * args_.ldy + block * kBlockN;
        RunTile(tile, piece);
      }
    }
  }

  void RunTile(size_t tile, PanelTile of) {
    constexpr size_t kPasses = kBlockN / kOutputs;
    const size_t units = tiles_.count * kPasses, fours = of.columns / kFours;
    const size_t share = of.columns * kColumnBytes / units;
    of.prefetch += tile * kPasses * share;
    of.prefetch_stride = (share + fours - 1) / fours;
    for (size_t pass = 0; pass < kPasses; ++pass) {
      if (tiles_.Size(tile) == kTileRows) {
        RunPanelTile<kTileRows>(of);
      } else {
        RunPanelTile<kTileRows - 1>(of);
      }
      of.w += kOutputs;
      of.y += kOutputs;
      of.prefetch += share;
    }
  }

  const GemmArgs& args_;
  const size_t row_;
  const RowGroups tiles_;
  alignas(64) float w_[std::is_same_v<Operand, OperandF32> ? 1 : kPieceK<Operand> * kBlockN];
  alignas(64) float x_[kSlabFloats];
};

// Not inlined, so that only this path pays for a slab on the stack.
template <typename Operand, typename Activation>
[[gnu::noinline]] void GemmPanels(const GemmArgs& args) {
  const RowGroups parts(args.rows, kPanelRows);
  for (size_t i = 0; i < parts.count; ++i)
    PanelProduct<Operand, Activation>(args, parts.Begin(i), parts.Size(i)).Run();
}

template <typename Operand, typename Activation>
void FloatGemm(const GemmArgs& args) {
  if (args.rows >= kManyRows<Operand> && args.blocks >= kPackedBlocks) {
    GemmPanels<Operand, Activation>(args);
  } else {
    Gemm<Operand, Activation>(args);
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
