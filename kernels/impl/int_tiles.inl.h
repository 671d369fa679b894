#pragma once

// Products with integer weights on matrix tiles (AMX): codes are the unsigned operand, activations
// the signed one. If whole rows are one group this is tile_gemm.inl.h, with int32 sums kept in y.
// Otherwise the codes of some groups at a time become a panel of bytes, and each group's sums pass
// through a buffer into floats.
// Tiles: as in tiles.inl.h, with Dot<sum, a, b>: sum += signed bytes of a times unsigned bytes of
// b. Epilogue: integer.inl.h's treatment of finished sums, all static:
//   WholeRow(layout, row, tail, sums, y)
//   AddGroup(layout, scales, x_sums, rows, sums, y, ldy)   some rows of one block's group
//   ScaleRow(row_scale, scales, sums, y)
//   AddOutliers(layout, x, rows, block, y, ldy)   rows of one block

#include "kernels/impl/tile_gemm.inl.h"
#include "kernels/integer.h"

namespace pinion::kernels::impl {
namespace {

constexpr size_t kTileColumns = 64;    // of K, in a step of bytes
constexpr size_t kTilesFromRows = 16;  // below, vectors stream codes as fast as memory gives them
// Columns of a panel, and of the widest group. Each panel loads and stores y once, so many rows use
// wide panels, of 64 KiB in L2. With few rows y stays in L1, and a panel of 16 KiB does so too.
constexpr size_t kPanelColumns = 1024, kFewRowsPanelColumns = 256;

// Whether groups fill whole steps. Those of e2m1 have 32 columns, half a step.
inline bool FitsTiles(const IntLayout& layout, size_t rows) {
  if (rows < kTilesFromRows || layout.e2m1) return false;
  if (layout.whole_rows()) return layout.bits == 8 && layout.k_padded() % kTileColumns == 0;
  return layout.group % kTileColumns == 0 && layout.group <= kPanelColumns;
}

// For layouts and rows that FitsTiles accepts.
inline ProductCut IntTileCut(const IntLayout& layout, size_t rows) {
  return TileCut(rows, layout.columns() / kTileColumns);
}

template <typename T>
T ReadAt(const std::byte* src, size_t index) {
  T value;
  __builtin_memcpy(&value, src + index * sizeof(T), sizeof(T));
  return value;
}

// Converts a group's codes of 4 bits to bytes, [columns/4][64 n][4 k], the layout of 8 bits.
inline void UnpackNibbles(const std::byte* src, size_t columns, std::byte* dst) {
  constexpr size_t kStep = 4 * kBlockN;  // bytes: 64 outputs, 8 columns of them
  for (size_t step = 0; step < columns / 8; ++step, src += kStep, dst += 2 * kStep) {
    for (size_t i = 0; i < kStep; ++i) {
      dst[i] = src[i] & std::byte{15};
      dst[kStep + i] = src[i] >> 4;
    }
  }
}

template <typename Tiles, typename Epilogue>
void WholeRowTiles(const IntLayout& layout, const IntGemmArgs& args) {
  const auto finish = [&](size_t block, size_t row, size_t rows) {
    const std::byte* tail = args.w + block * layout.block_bytes() + layout.group_bytes();
    const std::byte* x = args.x + row * layout.row_bytes();
    float* y = args.y + row * args.ldy + block * kBlockN;
    for (size_t r = 0; r < rows; ++r) {
      float* sums = y + r * args.ldy;
      Epilogue::WholeRow(layout, x + r * layout.row_bytes(), tail, sums, sums);
    }
    Epilogue::AddOutliers(layout, x, rows, args.w + block * layout.block_bytes(), y, args.ldy);
  };
  TileGemm<Tiles>({.x = args.x,
                   .x_stride = layout.row_bytes(),
                   .w = args.w,
                   .w_stride = layout.block_bytes(),
                   .y = reinterpret_cast<std::byte*>(args.y),
                   .y_stride = args.ldy * sizeof(float),
                   .rows = args.rows,
                   .steps = layout.k_padded() / kTileColumns,
                   .blocks = args.blocks},
                  finish);
}

// One call of gemm with weights in groups.
template <typename Tiles, typename Epilogue>
class GroupedProduct {
 public:
  GroupedProduct(const IntLayout& layout, const IntGemmArgs& args)
      : layout_(layout),
        args_(args),
        rows_at_once_(args.rows < kTileGroupRows ? args.rows : kTileGroupRows),
        panel_groups_(PanelGroups(layout, args.rows)),
        panels_((layout.groups() + panel_groups_ - 1) / panel_groups_),
        deep_(!StaysInCache(args.rows, layout.columns() / kTileColumns)) {}

  void Run() {
    for (size_t i = 0; i < args_.blocks * panels_; ++i) {
      const size_t block = deep_ ? i % args_.blocks : i / panels_;
      const size_t panel = deep_ ? i / args_.blocks : i % panels_;
      RunPanel(block, panel * panel_groups_);
    }
  }

 private:
  using Sums = float[kTileGroupRows][kBlockN];  // int32

  static size_t PanelGroups(const IntLayout& layout, size_t rows) {
    const size_t columns = rows <= kTileGroupRows ? kFewRowsPanelColumns : kPanelColumns;
    return layout.group < columns ? columns / layout.group : 1;
  }

  const std::byte* GroupAt(size_t block, size_t group) const {
    return args_.w + block * layout_.block_bytes() + group * layout_.group_bytes();
  }
  const std::byte* Row(size_t row) const { return args_.x + row * layout_.row_bytes(); }
  float* SumsAt(size_t block, size_t row) const {
    return args_.y + row * args_.ldy + block * kBlockN;
  }
  // The codes multiplied one panel later.
  const std::byte* Ahead(size_t block, size_t group) const {
    if (!deep_) return GroupAt(block, group + panel_groups_);
    return block + 1 < args_.blocks ? GroupAt(block + 1, group) : GroupAt(0, group + panel_groups_);
  }
  const std::byte* CodesOf(size_t block, size_t group, size_t first) const {
    if (layout_.bits == 8) return GroupAt(block, group);
    return panel_ + (group - first) * layout_.group * kBlockN;
  }

  // Multiplies all rows by one panel: a block's groups from `first` on.
  void RunPanel(size_t block, size_t first) {
    const size_t left = layout_.groups() - first;
    const size_t groups = left < panel_groups_ ? left : panel_groups_;
    for (size_t i = 0; i < groups && layout_.bits == 4; ++i)
      UnpackNibbles(GroupAt(block, first + i), layout_.group, panel_ + i * layout_.group * kBlockN);
    for (size_t row = 0; row < args_.rows; row += rows_at_once_) {
      const size_t below = args_.rows - row;
      RunRows(block, first, groups, row, below < rows_at_once_ ? below : rows_at_once_);
    }
  }

  // Software pipeline: vectors add one group's sums while tiles multiply the next, hence two
  // buffers.
  void RunRows(size_t block, size_t first, size_t groups, size_t row, size_t rows) {
    alignas(64) Sums sums[2];
    if (first == 0) {
      for (size_t r = row; r < row + rows; ++r)
        __builtin_memset(SumsAt(block, r), 0, kBlockN * sizeof(float));
    }
    for (size_t group = first; group <= first + groups; ++group) {
      if (group < first + groups)
        Multiply(block, group, CodesOf(block, group, first), row, rows, sums[group % 2]);
      if (group > first) Add(block, group - 1, row, rows, sums[(group - 1) % 2]);
    }
    if (first + groups == layout_.groups()) Scale(block, row, rows);
  }

  void Multiply(size_t block, size_t group, const std::byte* codes, size_t row, size_t rows,
                Sums& sums) {
    // The first rows prefetch what is multiplied one panel later.
    const size_t steps = layout_.group / kTileColumns;
    const size_t lines = row > 0 ? 0 : (layout_.group_bytes() / kTileBytes + steps - 1) / steps;
    tiles_.RunBlock({.x = RowsAt(Row(row) + group * layout_.group, layout_.row_bytes()),
                     .y = reinterpret_cast<std::byte*>(sums),
                     .y_stride = sizeof(sums[0]),
                     .w = {codes, kTileBlockBytes},
                     .w_pitch = kTileRowPitch,
                     .steps = steps,
                     .accumulate = false,
                     .prefetch = {Ahead(block, group)},
                     .lines = lines},
                    rows);
  }

  void Add(size_t block, size_t group, size_t row, size_t rows, const Sums& sums) {
    int32_t x_sums[kTileGroupRows];
    for (size_t r = 0; r < rows; ++r)
      x_sums[r] = ReadAt<int32_t>(Row(row + r) + layout_.columns() + 8, group);
    const std::byte* scales = GroupAt(block, group) + layout_.code_bytes(layout_.group);
    Epilogue::AddGroup(layout_, reinterpret_cast<const F16*>(scales), x_sums, rows, sums,
                       SumsAt(block, row), args_.ldy);
  }

  void Scale(size_t block, size_t row, size_t rows) {
    const auto* scales = reinterpret_cast<const float*>(GroupAt(block, layout_.groups()));
    for (size_t r = row; r < row + rows; ++r) {
      float* y = SumsAt(block, r);
      Epilogue::ScaleRow(ReadAt<float>(Row(r) + layout_.columns(), 0), scales, y, y);
    }
    Epilogue::AddOutliers(layout_, Row(row), rows, GroupAt(block, 0), SumsAt(block, row),
                          args_.ldy);
  }

  const IntLayout& layout_;
  const IntGemmArgs& args_;
  const size_t rows_at_once_, panel_groups_, panels_;
  // Whether the activations do not stay in cache as a whole: then all blocks are multiplied by the
  // columns of one panel before the next, as in tile_gemm.inl.h.
  const bool deep_;
  TileUnit<Tiles> tiles_;
  alignas(64) std::byte panel_[kPanelColumns * kBlockN];
};

// Requires FitsTiles.
template <typename Tiles, typename Epilogue>
void IntTileGemm(const IntLayout& layout, const IntGemmArgs& args) {
  if (layout.whole_rows()) return WholeRowTiles<Tiles, Epilogue>(layout, args);
  GroupedProduct<Tiles, Epilogue>(layout, args).Run();
}

}  // namespace
}  // namespace pinion::kernels::impl
