#pragma once

// Products with the activations that are kept apart from a rounded row (integer.h). Include the
// ISA's integers first.

#include "kernels/impl/int_rows.inl.h"
#include "kernels/impl/int_scales.inl.h"

namespace pinion::kernels::impl {
namespace {

// Columns of one block as floats. Rows mostly have their outliers in the same columns, so a column
// is converted once for many rows, which otherwise took four times as long as the products.
class BlockColumns {
 public:
  BlockColumns(const IntLayout& layout, const std::byte* block) : layout_(layout), block_(block) {
    for (uint32_t& column : kept_) column = kNoColumn;
  }

  // [kBlockN], until the next call.
  const float* At(uint32_t column) {
    const uint32_t place = column * kSpread >> (32 - kKeptBits);
    if (kept_[place] != column) Convert(column, weights_[place]);
    kept_[place] = column;
    return weights_[place];
  }

 private:
  static constexpr uint32_t kKeptBits = 6;
  // Knuth's multiplicative hash: neighbours, and columns a power of two apart, rarely meet.
  static constexpr uint32_t kSpread = 2654435769;

  void Convert(uint32_t column, float* weights) const {
    const size_t in_word = layout_.bits == 8 ? 4 : 8;
    const auto width =
        static_cast<uint32_t>(layout_.whole_rows() ? layout_.k_padded() : layout_.group);
    const size_t place = column % width % in_word;
    const std::byte* group = block_ + column / width * layout_.group_bytes();
    const std::byte* words = group + column % width / in_word * kBlockN * sizeof(uint32_t);
    const std::byte* scales = group + layout_.code_bytes(width);
    const auto* own =
        reinterpret_cast<const float*>(block_ + layout_.groups() * layout_.group_bytes());
    for (size_t lane = 0; lane < kBlockN; lane += kLanes) {
      const LaneScales of = ScalesAt(layout_, scales, own, lane);
      const Vec code = CodeIn(Load(reinterpret_cast<const float*>(words) + lane), place);
      Store(weights + lane, layout_.e2m1() ? of.WeightsOfE2M1(code) : of.WeightsOf(code));
    }
  }

  // Of each lane's word, the code in that place.
  Vec CodeIn(Vec word, size_t place) const {
    const int byte = static_cast<int>(8 * (place % 4));
    if (layout_.bits == 8) return FieldAt(word, byte, 255);
    if (!layout_.e2m1()) return FieldAt(word, byte + static_cast<int>(place / 4 * 4), 15);
    return FieldAt(LookUpE2M1(place < 4 ? LowNibbles(word) : HighNibbles(word)), byte, 255);
  }

  const IntLayout& layout_;
  const std::byte* block_;
  uint32_t kept_[1 << kKeptBits];
  alignas(64) float weights_[1 << kKeptBits][kBlockN];
};

// y[rows][64] += products of the rows' outliers with one block's packed weights. x: rounded rows.
void AddOutliers(const IntLayout& layout, const std::byte* x, size_t rows, const std::byte* block,
                 float* y, size_t ldy) {
  if (layout.outliers == 0) return;
  constexpr size_t kVectors = kBlockN / kLanes;
  BlockColumns columns(layout, block);
  for (size_t row = 0; row < rows; ++row, x += layout.row_bytes(), y += ldy) {
    const OutliersOfRow of = OutliersOf(layout, x);
    if (of.count == 0) continue;
    Vec sums[kVectors];
    for (size_t v = 0; v < kVectors; ++v) sums[v] = Load(y + v * kLanes);
    for (const Outlier* outlier = of.first; outlier < of.first + of.count; ++outlier) {
      const float* weights = columns.At(outlier->column);
      const Vec value = Set(outlier->value);
      for (size_t v = 0; v < kVectors; ++v)
        sums[v] = Fma(Load(weights + v * kLanes), value, sums[v]);
    }
    for (size_t v = 0; v < kVectors; ++v) Store(y + v * kLanes, sums[v]);
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
