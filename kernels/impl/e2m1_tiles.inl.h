#pragma once

// Products with codes of e2m1 on matrix tiles (AMX) of bfloat16, which holds both operands exactly:
// a weight is a code, of which e2m1 has two significant bits, times a scale, of which a power of
// two has one and e4m3 four; a rounded activation is a whole number. So one sum runs over all
// groups, whatever their scales. (As bytes, groups of 32 columns would fill half of each tile, and
// each group's sums would have to be scaled apart.) Activations are widened once for a slice of K;
// a block's weights in it become a panel of tiles, while the panel before is multiplied.
//
// Tiles: as in tiles.inl.h, with Dot<sum, a, b>: sum += pairs of bfloat16.
// Vectors, all static:
//   WidenStep(x, dst)      32 activations, eight after eight in the order kE2m1Order
//   WidenWords<kWords>(type, codes, scales, dst)
//                          8 kWords columns of 16 outputs, of one group whose scales are of that
//                          type, in the same order, as 4 kWords rows of a tile of w
//   ScaleRow, AddOutliers  as in int_tiles.inl.h

#include "kernels/impl/tile_gemm.inl.h"
#include "kernels/integer.h"

namespace pinion::kernels::impl {
namespace {

constexpr size_t kE2m1StepColumns = kTileBytes / sizeof(Bf16);
// The narrowest groups, of which two make a step.
constexpr size_t kE2m1HalfColumns = kE2m1StepColumns / 2;
// Eight columns are packed in a word: this order takes both halves of a word apart at once.
constexpr size_t kE2m1Order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
// As of integers in groups (kGroupTilesFromRows); not measured.
constexpr size_t kE2m1TilesFromRows = 33;
// With the slice of 128 rows, 256 KiB, and two panels of 128 KiB each, L2 has room for the sums.
constexpr size_t kE2m1PartRows = 128, kE2m1SliceSteps = 32;
// How many steps ahead of their conversion codes are prefetched: 64 rows multiply a step in 256
// clocks or more, and four steps cover a latency of 200 ns.
constexpr size_t kE2m1AheadSteps = 4;

inline bool FitsE2m1Tiles(const IntLayout& layout, size_t rows) {
  return layout.e2m1() && layout.columns() % kE2m1StepColumns == 0 &&
         (layout.group % kE2m1StepColumns == 0 || layout.group == kE2m1HalfColumns) &&
         rows >= kE2m1TilesFromRows;
}

// For products that FitsE2m1Tiles accepts. Every call widens its activations and, for each part of
// its rows, its weights.
inline ProductCut E2m1TileCut() { return {kE2m1PartRows, kDeepBlocks, kE2m1PartRows}; }

// One call of gemm.
template <typename Tiles, typename Vectors>
class E2m1Product {
 public:
  E2m1Product(const IntLayout& layout, const IntGemmArgs& args)
      : layout_(layout),
        args_(args),
        slices_(layout.columns() / kE2m1StepColumns, kE2m1SliceSteps),
        panels_(slices_.count * args.blocks) {}

  void Run() {
    const ProductParts parts(args_.rows, kE2m1PartRows);
    for (size_t i = 0; i < parts.count; ++i) RunPart(parts.Begin(i), parts.Size(i));
  }

 private:
  // The weights of one block in one slice.
  struct Panel {
    size_t block, step, steps;
  };
  Panel PanelAt(size_t i) const {
    const size_t slice = i / args_.blocks;
    return {i % args_.blocks, slices_.Begin(slice), slices_.Size(slice)};
  }

  const std::byte* Block(size_t block) const { return args_.w + block * layout_.block_bytes(); }
  const std::byte* GroupOf(size_t block, size_t step) const {
    return Block(block) + step * kE2m1StepColumns / layout_.group * layout_.group_bytes();
  }
  const std::byte* CodesAt(size_t block, size_t step) const {
    return GroupOf(block, step) + layout_.code_bytes(step * kE2m1StepColumns % layout_.group);
  }
  const std::byte* Row(size_t row) const { return args_.x + row * layout_.row_bytes(); }

  // Converts a panel's weights, some tiles after each of `products` products of the panel before.
  class Conversion {
   public:
    Conversion(E2m1Product& product, size_t index, size_t products)
        : product_(product),
          panel_(product.PanelAt(index)),
          after_(product.PanelAt(index + 1 < product.panels_ ? index + 1 : 0)),
          dst_(product.panel_[index % 2]),
          tiles_(index < product.panels_ ? panel_.steps * kTilesOfStep : 0),
          products_(products) {}
    void operator()() {
      for (owed_ += tiles_; owed_ >= products_; owed_ -= products_) Next();
    }
    void Rest() {
      while (done_ < tiles_) Next();
    }

   private:
    static constexpr size_t kTilesOfStep = kBlockN / kTileHeight;

    void Next() {
      const size_t step = done_ / kTilesOfStep, first = done_ % kTilesOfStep * kTileHeight;
      const IntLayout& layout = product_.layout_;
      const size_t at = panel_.step + step;
      const std::byte* codes = product_.CodesAt(panel_.block, at) + first * sizeof(uint32_t);
      const std::byte* scales =
          product_.GroupOf(panel_.block, at) + layout.code_bytes(layout.group) + first;
      std::byte* dst = dst_ + done_ * kTileSize;
      if (layout.group == kE2m1HalfColumns) {
        const size_t next = layout.group_bytes();
        Vectors::template WidenWords<2>(layout.scale_type, codes, scales, dst);
        Vectors::template WidenWords<2>(layout.scale_type, codes + next, scales + next,
                                        dst + kTileSize / 2);
      } else {
        Vectors::template WidenWords<4>(layout.scale_type, codes, scales, dst);
      }
      Prefetch(step + kE2m1AheadSteps, done_ % kTilesOfStep);
      ++done_;
    }
    // Asks for a quarter of a step's lines: its codes and the scales between and behind them, if
    // groups are not wider.
    void Prefetch(size_t step, size_t quarter) const {
      const std::byte* codes =
          step < panel_.steps ? product_.CodesAt(panel_.block, panel_.step + step)
                              : product_.CodesAt(after_.block, after_.step + step - panel_.steps);
      const IntLayout& layout = product_.layout_;
      const size_t in_step = layout.group == kE2m1HalfColumns ? 2 : 1;
      const size_t lines =
          layout.code_bytes(kE2m1StepColumns) / kTileBytes + in_step * kBlockN / kTileBytes;
      for (size_t line = quarter * lines / kTilesOfStep;
           line < (quarter + 1) * lines / kTilesOfStep; ++line)
        __builtin_prefetch(codes + line * kTileBytes, 0, 2);
    }

    const E2m1Product& product_;
    const Panel panel_, after_;
    std::byte* dst_;
    const size_t tiles_, products_;
    size_t done_ = 0, owed_ = 0;
  };

  void RunPart(size_t row, size_t rows) {
    Conversion(*this, 0, 1).Rest();
    for (size_t i = 0; i < panels_; ++i) {
      const Panel panel = PanelAt(i);
      if (panel.block == 0) WidenRows(row, rows, panel);
      const size_t products =
          panel.steps * kBlockN / kTileHeight * ((rows + kTileHeight - 1) / kTileHeight);
      Conversion next(*this, i + 1, products);
      Multiply(row, rows, panel, panel_[i % 2], next);
      next.Rest();
      if (panel.step + panel.steps == slices_.total) Finish(row, rows, panel.block);
    }
  }

  void WidenRows(size_t row, size_t rows, const Panel& panel) {
    for (size_t r = 0; r < rows; ++r) {
      const std::byte* x = Row(row + r) + panel.step * kE2m1StepColumns;
      std::byte* dst =
          slice_ + (r / kTileHeight * panel.steps * kTileHeight + r % kTileHeight) * kTileBytes;
      for (size_t step = 0; step < panel.steps; ++step)
        Vectors::WidenStep(x + step * kE2m1StepColumns, dst + step * kTileSize);
    }
  }

  void Multiply(size_t row, size_t rows, const Panel& panel, const std::byte* w, Conversion& next) {
    TileRows x{slice_, kTileBytes, panel.steps * kTileSize, kTileSize};
    for (size_t r = 0; r < rows; r += kTileGroupRows) {
      const size_t left = rows - r;
      tiles_.RunBlock({.x = x,
                       .y = reinterpret_cast<std::byte*>(SumsAt(panel.block, row + r)),
                       .y_stride = args_.ldy * sizeof(float),
                       .w = {w, kTileBlockBytes},
                       .w_pitch = kTileBytes,
                       .steps = panel.steps,
                       .accumulate = panel.step > 0,
                       .prefetch = {},
                       .lines = 0,
                       .w_tile = kTileSize,
                       .prefetches_next = true},
                      left < kTileGroupRows ? left : kTileGroupRows, next);
      x.first += 2 * x.tile;
    }
  }

  float* SumsAt(size_t block, size_t row) const {
    return args_.y + row * args_.ldy + block * kBlockN;
  }

  // Scales a block's sums and adds the outliers.
  void Finish(size_t row, size_t rows, size_t block) {
    const auto* scales =
        reinterpret_cast<const float*>(Block(block) + layout_.groups() * layout_.group_bytes());
    for (size_t r = 0; r < rows; ++r) {
      float row_scale, *y = SumsAt(block, row + r);
      __builtin_memcpy(&row_scale, Row(row + r) + layout_.columns(), sizeof(row_scale));
      Vectors::ScaleRow(row_scale, scales, y, y);
    }
    Vectors::AddOutliers(layout_, Row(row), rows, Block(block), SumsAt(block, row), args_.ldy);
  }

  const IntLayout& layout_;
  const IntGemmArgs& args_;
  const EvenSteps slices_;
  const size_t panels_;
  TileUnit<Tiles> tiles_;
  alignas(64) std::byte slice_[kE2m1PartRows * kE2m1SliceSteps * kTileBytes];
  alignas(64) std::byte panel_[2][kE2m1SliceSteps * kTileBlockBytes];
};

// Requires FitsE2m1Tiles. Not inlined, so that other products do not pay for its stack.
template <typename Tiles, typename Vectors>
[[gnu::noinline]] void E2m1TileGemm(const IntLayout& layout, const IntGemmArgs& args) {
  E2m1Product<Tiles, Vectors>(layout, args).Run();
}

}  // namespace
}  // namespace pinion::kernels::impl
