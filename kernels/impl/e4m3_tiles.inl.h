#pragma once

// Products with weights in e4m3 on matrix tiles (AMX): the bytes of some columns of a block become
// a panel of bfloat16, which tiles multiply by all rows. Each group's sums pass through a buffer
// into y, scaled.
// Tiles: as in tiles.inl.h, with Dot<sum, a, b>: sum += pairs of bfloat16. Steps, all static:
//   Convert(w, columns, dst)   a panel [columns / 2][64 n][2 k] of bfloat16
//   Add(sums, scales, rows, y, ldy, accumulate)   y = or += scales * sums

#include "kernels/e4m3.h"
#include "kernels/impl/tile_gemm.inl.h"

namespace pinion::kernels::impl {
namespace {

constexpr size_t kE4m3StepColumns = kTileBytes / sizeof(Bf16);
// Each panel loads and stores y once. With few rows y stays in L1, and a panel of 16 KiB does so
// too; with many a panel is wide, of 128 KiB in L2.
constexpr size_t kE4m3PanelColumns = 1024, kFewRowsE4m3Columns = 128;

// Whether groups fill whole steps; below 16 rows vectors are as fast.
inline bool FitsE4m3Tiles(const IntLayout& layout, Dtype x_type, size_t rows) {
  if (x_type != Dtype::kBf16 || rows < kTileHeight) return false;
  return layout.whole_rows() || layout.group % kE4m3StepColumns == 0;
}

// For products that FitsE4m3Tiles accepts. Every call converts all its weights, so even one of few
// blocks gets many rows.
inline ProductCut E4m3TileCut(const IntLayout& layout, size_t rows) {
  ProductCut cut = TileCut(rows, layout.k_padded() / kE4m3StepColumns);
  cut.rows_of_few = cut.rows;
  return cut;
}

// One call of gemm.
template <typename Tiles, typename Steps>
class E4m3TileProduct {
 public:
  E4m3TileProduct(const IntLayout& layout, const E4m3GemmArgs& args)
      : layout_(layout),
        args_(args),
        k_padded_(layout.k_padded()),
        width_(layout.whole_rows() ? k_padded_ : layout.group),
        panel_columns_(PanelColumns(args.rows)),
        deep_(!StaysInCache(args.rows, k_padded_ / kE4m3StepColumns)) {}

  void Run() {
    const size_t panels = (k_padded_ + panel_columns_ - 1) / panel_columns_;
    for (size_t i = 0; i < args_.blocks * panels; ++i) {
      const size_t block = deep_ ? i % args_.blocks : i / panels;
      RunPanel(block, (deep_ ? i / args_.blocks : i % panels) * panel_columns_);
    }
  }

 private:
  using Sums = float[kTileGroupRows][kBlockN];

  // Columns of one group within a panel.
  struct Piece {
    size_t k, columns, row, rows;
    const float* scales;
  };

  size_t PanelColumns(size_t rows) const {
    const size_t most = rows <= kTileGroupRows ? kFewRowsE4m3Columns : kE4m3PanelColumns;
    return width_ < most ? most / width_ * width_ : most;
  }
  const std::byte* CodesAt(size_t block, size_t k) const {
    return args_.w + block * layout_.block_bytes() + k / width_ * layout_.group_bytes() +
           layout_.code_bytes(k % width_);
  }
  const float* ScalesAt(size_t block, size_t k) const {
    return reinterpret_cast<const float*>(CodesAt(block, k / width_ * width_) +
                                          layout_.code_bytes(width_));
  }
  size_t PanelEnd(size_t first) const {
    return first + panel_columns_ < k_padded_ ? first + panel_columns_ : k_padded_;
  }
  // Columns from k on that lie in its group, and before `end`.
  size_t ColumnsAt(size_t k, size_t end) const {
    const size_t group_end = k / width_ * width_ + width_;
    return (group_end < end ? group_end : end) - k;
  }

  // Multiplies all rows by the columns of a block from `first` on.
  void RunPanel(size_t block, size_t first) {
    const size_t end = PanelEnd(first);
    for (size_t k = first; k < end; k += ColumnsAt(k, end))
      Steps::Convert(CodesAt(block, k), ColumnsAt(k, end),
                     panel_ + (k - first) * kBlockN * sizeof(Bf16));
    for (size_t row = 0; row < args_.rows; row += kTileGroupRows) {
      const size_t below = args_.rows - row;
      RunRows(block, first, row, below < kTileGroupRows ? below : kTileGroupRows);
    }
  }

  // Software pipeline: vectors add one piece's sums while tiles multiply the next, hence two
  // buffers.
  void RunRows(size_t block, size_t first, size_t row, size_t rows) {
    alignas(64) Sums sums[2];
    Piece last = {};
    size_t count = 0;
    for (size_t k = first; k < PanelEnd(first); k += last.columns, ++count) {
      const Piece piece{k, ColumnsAt(k, PanelEnd(first)), row, rows, ScalesAt(block, k)};
      Multiply(block, piece, first, sums[count % 2]);
      if (count > 0) Add(block, last, sums[(count - 1) % 2]);
      last = piece;
    }
    Add(block, last, sums[(count - 1) % 2]);
  }

  // The bytes of weights that are converted one panel later.
  const std::byte* Ahead(size_t block, size_t k) const {
    if (deep_ && block + 1 < args_.blocks) return CodesAt(block + 1, k);
    const std::byte* codes = CodesAt(deep_ ? 0 : block, k);
    return codes + panel_columns_ / width_ * layout_.group_bytes() +
           layout_.code_bytes(panel_columns_ % width_);
  }

  void Multiply(size_t block, const Piece& piece, size_t first, Sums& sums) {
    const auto* x = static_cast<const std::byte*>(args_.x);
    const size_t stride = k_padded_ * sizeof(Bf16);
    // The first rows prefetch.
    constexpr size_t kLines = kE4m3StepColumns * kBlockN / kTileBytes;
    tiles_.RunBlock({.x = RowsAt(x + piece.row * stride + piece.k * sizeof(Bf16), stride),
                     .y = reinterpret_cast<std::byte*>(sums),
                     .y_stride = sizeof(sums[0]),
                     .w = {panel_ + (piece.k - first) * kBlockN * sizeof(Bf16), kTileBlockBytes},
                     .w_pitch = kTileRowPitch,
                     .steps = piece.columns / kE4m3StepColumns,
                     .accumulate = false,
                     .prefetch = {Ahead(block, piece.k)},
                     .lines = piece.row > 0 ? 0 : kLines},
                    piece.rows);
  }

  void Add(size_t block, const Piece& piece, const Sums& sums) {
    Steps::Add(sums, piece.scales, piece.rows, args_.y + piece.row * args_.ldy + block * kBlockN,
               args_.ldy, piece.k > 0);
  }

  const IntLayout& layout_;
  const E4m3GemmArgs& args_;
  const size_t k_padded_, width_, panel_columns_;
  // As for integers: whether all blocks are multiplied by one panel's columns before the next.
  const bool deep_;
  TileUnit<Tiles> tiles_;
  alignas(64) std::byte panel_[kE4m3PanelColumns * kBlockN * sizeof(Bf16)];
};

// Requires FitsE4m3Tiles.
template <typename Tiles, typename Steps>
void E4m3TileGemm(const IntLayout& layout, const E4m3GemmArgs& args) {
  E4m3TileProduct<Tiles, Steps>(layout, args).Run();
}

}  // namespace
}  // namespace pinion::kernels::impl
