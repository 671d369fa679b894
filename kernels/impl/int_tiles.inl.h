#pragma once

// Products with integer weights on matrix tiles (AMX): codes are the unsigned operand, activations
// the signed one. If whole rows are one group this is tile_gemm.inl.h, with int32 sums kept in y.
// Otherwise the codes of some groups at a time become a panel of bytes, and each group's sums pass
// through a buffer into floats.
// Tiles: as in tiles.inl.h, with Dot<sum, a, b>: sum += signed bytes of a times unsigned bytes of
// b. Vectors: what vectors do beside tiles, all static:
//   Unpack(src, low, high)   64 bytes of nibbles to 64 low and 64 high ones
//   WholeRow(layout, row, tail, sums, y)
//   AddGroup(layout, scales, sums, row, rows, totals)   rows [row, row + rows) of GroupSums
//   ScaleRow(row_scale, scales, sums, y)
//   AddOutliers(layout, x, rows, block, y, ldy)   rows of one block

#include "kernels/impl/tile_gemm.inl.h"
#include "kernels/integer.h"

namespace pinion::kernels::impl {
namespace {

constexpr size_t kTileColumns = 64;  // of K, in a step of bytes
// Below these numbers of rows vectors are as fast, because memory or the sums of groups set the
// pace. Of int4 in groups of 128, tiles computed 16 rows at 0.7 times the vectors' speed, 32 at 1.0
// and 64 at 1.4 to 1.8 times (Emerald Rapids, two threads: pinion-bench
// --benchmark_filter='integer/(amx|avx512_bf16)/int4-g128/1b.gate_up').
constexpr size_t kTilesFromRows = 16, kGroupTilesFromRows = 33;
// Columns of a panel, and of the widest group. Each panel loads and stores y once, so panels are
// wide: 128 KiB in L2.
constexpr size_t kPanelColumns = 2048;

// Whether tiles multiply this: enough rows, and groups of whole steps. In half a step, for groups
// of 32 columns, a product takes as long as in a whole one, and vectors are as fast.
inline bool FitsTiles(const IntLayout& layout, size_t rows) {
  if (layout.whole_rows())
    return rows >= kTilesFromRows && layout.bits == 8 && layout.k_padded() % kTileColumns == 0;
  return rows >= kGroupTilesFromRows && !layout.e2m1() && layout.group % kTileColumns == 0 &&
         layout.group <= kPanelColumns;
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

// Converts codes of 4 bits to bytes, as tiles of w: [columns/64][64 n/16][16][16 n][4 k].
template <typename Vectors>
void UnpackGroup(const std::byte* src, size_t columns, std::byte* dst) {
  for (size_t column = 0; column < columns; column += 8) {
    const size_t step = column / kTileColumns, row = column % kTileColumns / 4;
    std::byte* low = dst + step * kTileBlockBytes + row * kTileBytes;
    for (size_t tile = 0; tile < 4; ++tile, src += kTileBytes, low += kTileSize)
      Vectors::Unpack(src, low, low + kTileBytes);
  }
}

// The sums of one unit: of the products of some rows and one group of columns with the outputs
// [output, output + outputs) of a block. They are added to floats while tiles multiply the next
// unit.
struct GroupSums {
  size_t group, output, outputs;
  float* sums;            // int32 [rows][outputs]
  const int32_t* x_sums;  // [rows]: of the group's activations
};

template <typename Tiles, typename Vectors>
void WholeRowTiles(const IntLayout& layout, const IntGemmArgs& args) {
  const auto finish = [&](size_t block, size_t row, size_t rows) {
    const std::byte* tail = args.w + block * layout.block_bytes() + layout.group_bytes();
    const std::byte* x = args.x + row * layout.row_bytes();
    float* y = args.y + row * args.ldy + block * kBlockN;
    for (size_t r = 0; r < rows; ++r) {
      float* sums = y + r * args.ldy;
      Vectors::WholeRow(layout, x + r * layout.row_bytes(), tail, sums, sums);
    }
    Vectors::AddOutliers(layout, x, rows, args.w + block * layout.block_bytes(), y, args.ldy);
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
template <typename Tiles, typename Vectors>
class GroupedProduct {
 public:
  GroupedProduct(const IntLayout& layout, const IntGemmArgs& args)
      : layout_(layout),
        args_(args),
        panel_groups_(layout.group < kPanelColumns ? kPanelColumns / layout.group : 1),
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
  // Some rows of one block, and the groups [first, end) of a panel.
  struct Part {
    size_t block, first, end, row, rows;
    // Outputs of a unit: tiles of more rows have half as many columns.
    size_t outputs() const { return rows > kTileHeight ? kBlockN / 2 : kBlockN; }
  };

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

  // Multiplies all rows by one panel: a block's groups from `first` on.
  void RunPanel(size_t block, size_t first) {
    const size_t left = layout_.groups() - first;
    const size_t end = first + (left < panel_groups_ ? left : panel_groups_);
    for (size_t group = first; group < end && layout_.bits == 4; ++group)
      UnpackGroup<Vectors>(GroupAt(block, group), layout_.group,
                           panel_ + (group - first) * layout_.group * kBlockN);
    for (size_t row = 0; row < args_.rows; row += kTileGroupRows) {
      const size_t below = args_.rows - row;
      RunRows({block, first, end, row, below < kTileGroupRows ? below : kTileGroupRows});
    }
  }

  // Unit by unit: a group of columns, all or half of the block's outputs.
  void RunRows(const Part& part) {
    TakeSums(part);
    Adder previous(*this, part, {}, 0);
    const size_t outputs = part.outputs(), in_group = kBlockN / outputs;
    for (size_t unit = 0; unit < (part.end - part.first) * in_group; ++unit) {
      const GroupSums sums{part.first + unit / in_group, unit % in_group * outputs, outputs,
                           sums_[unit % 2], x_sums_[unit / in_group]};
      Multiply(part, sums, previous);
      previous.AddRest();
      previous = Adder(*this, part, sums, part.rows);
    }
    previous.AddRest();
    KeepTotals(part);
  }

  // Adds a unit's sums to the totals, some rows after each product of the next unit.
  class Adder {
   public:
    Adder(GroupedProduct& product, const Part& part, const GroupSums& sums, size_t rows)
        : product_(&product),
          scales_(product.GroupAt(part.block, sums.group) +
                  product.layout_.code_bytes(product.layout_.group)),
          sums_(sums),
          rows_(rows) {
      at_once_ = (rows + kPieces - 1) / kPieces;
    }
    void operator()() { Add(at_once_); }
    void AddRest() { Add(rows_); }

   private:
    // A unit has at least four products. Each piece widens the scales again.
    static constexpr size_t kPieces = 4;

    void Add(size_t most) {
      const size_t rows = most < rows_ - row_ ? most : rows_ - row_;
      if (rows == 0) return;
      Vectors::AddGroup(product_->layout_, scales_, sums_, row_, rows, product_->totals_);
      row_ += rows;
    }

    GroupedProduct* product_;
    const std::byte* scales_;
    GroupSums sums_;
    size_t rows_, at_once_;
    size_t row_ = 0;
  };

  void Multiply(const Part& part, const GroupSums& sums, Adder& previous) {
    const size_t steps = layout_.group / kTileColumns, half = sums.output / (kBlockN / 2);
    // The first rows, in two units a group, prefetch what is multiplied one panel later.
    const size_t asked = (layout_.group_bytes() / kTileBytes + 2 * steps - 1) / (2 * steps);
    const size_t lines = part.row > 0 ? 0 : asked;
    const bool in_place = layout_.bits == 8;
    const std::byte* codes = in_place
                                 ? GroupAt(part.block, sums.group)
                                 : panel_ + (sums.group - part.first) * layout_.group * kBlockN;
    TilePass pass{.x = RowsAt(Row(part.row) + sums.group * layout_.group, layout_.row_bytes()),
                  .y = reinterpret_cast<std::byte*>(sums.sums),
                  .y_stride = sums.outputs * sizeof(float),
                  .w = {codes, kTileBlockBytes},
                  .w_pitch = in_place ? kTileRowPitch : kTileBytes,
                  .steps = steps,
                  .accumulate = false,
                  .prefetch = {Ahead(part.block, sums.group) + half * lines * steps * kTileBytes,
                               lines * kTileBytes},
                  .lines = lines,
                  .w_tile = in_place ? kTileBytes : kTileSize,
                  .prefetches_next = !IsCrowded(layout_.row_bytes())};
    pass.w.first += 2 * half * pass.w_tile;
    sums.outputs == kBlockN ? tiles_.RunWide(pass, part.rows, previous)
                            : tiles_.RunHalf(pass, part.rows, previous);
  }

  // Fetches what rows have summed up before this panel, and the sums of their activations.
  void TakeSums(const Part& part) {
    for (size_t r = 0; r < part.rows; ++r) {
      if (part.first == 0) {
        __builtin_memset(totals_[r], 0, sizeof(totals_[r]));
      } else {
        __builtin_memcpy(totals_[r], SumsAt(part.block, part.row + r), sizeof(totals_[r]));
      }
      const std::byte* x_sums = Row(part.row + r) + layout_.columns() + 8;
      for (size_t group = part.first; group < part.end; ++group)
        x_sums_[group - part.first][r] = ReadAt<int32_t>(x_sums, group);
    }
  }

  void KeepTotals(const Part& part) {
    const bool is_last = part.end == layout_.groups();
    const auto* scales = reinterpret_cast<const float*>(GroupAt(part.block, layout_.groups()));
    for (size_t r = 0; r < part.rows; ++r) {
      float* y = SumsAt(part.block, part.row + r);
      if (is_last) {
        const auto row_scale = ReadAt<float>(Row(part.row + r) + layout_.columns(), 0);
        Vectors::ScaleRow(row_scale, scales, totals_[r], y);
      } else {
        __builtin_memcpy(y, totals_[r], sizeof(totals_[r]));
      }
    }
    if (is_last) AddOutliersTo(part);
  }
  void AddOutliersTo(const Part& part) {
    Vectors::AddOutliers(layout_, Row(part.row), part.rows, GroupAt(part.block, 0),
                         SumsAt(part.block, part.row), args_.ldy);
  }

  const IntLayout& layout_;
  const IntGemmArgs& args_;
  const size_t panel_groups_, panels_;
  // Whether the activations do not stay in cache as a whole: then all blocks are multiplied by the
  // columns of one panel before the next, as in tile_gemm.inl.h.
  const bool deep_;
  TileUnit<Tiles> tiles_;
  // One unit's sums are added while the next is multiplied, hence two.
  alignas(64) float sums_[2][kTileGroupRows * kBlockN / 2];
  alignas(64) float totals_[kTileGroupRows][kBlockN];
  int32_t x_sums_[kPanelColumns / kTileColumns][kTileGroupRows];
  alignas(64) std::byte panel_[kPanelColumns * kBlockN];
};

// Requires FitsTiles.
template <typename Tiles, typename Vectors>
void IntTileGemm(const IntLayout& layout, const IntGemmArgs& args) {
  if (layout.whole_rows()) return WholeRowTiles<Tiles, Vectors>(layout, args);
  GroupedProduct<Tiles, Vectors>(layout, args).Run();
}

}  // namespace
}  // namespace pinion::kernels::impl
