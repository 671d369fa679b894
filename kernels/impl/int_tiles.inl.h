#pragma once

// Products with integer weights on matrix tiles (AMX), over the frame of tiles.inl.h: codes are the
// unsigned side, activations the signed one. Where whole rows are one group the int32 sums wait in
// y, as in integer.inl.h; else each group's codes become a panel of bytes that stays in L1, and its
// sums pass through a buffer.
//
// Tiles: as for TileGemm, with Dot<sum, a, b>: sum += signed bytes of a times unsigned bytes of b.
// Epilogue, all static: what integer.inl.h does once sums are there
//   WholeRow(layout, row, tail, sums, y)
//   AddGroup(layout, scales, x_sums, rows, sums, y, ldy)   some rows of one block's group
//   ScaleRow(row_scale, scales, sums, y)

#include "kernels/impl/tiles.inl.h"
#include "kernels/integer.h"

namespace pinion::kernels::impl {
namespace {

constexpr size_t kTileColumns = 64;     // of K, in a step of bytes
constexpr size_t kTilesFromRows = 16;   // below, vectors stream codes as fast as memory gives them
constexpr size_t kPanelColumns = 1024;  // the widest group whose panel is unpacked: 64 KiB
constexpr size_t kSumRows = 64;         // rows of sums at once: 16 KiB

// Whether groups fill whole steps.
inline bool FitsTiles(const IntLayout& layout, size_t rows) {
  if (rows < kTilesFromRows) return false;
  if (layout.whole_rows()) return layout.bits == 8 && layout.k_padded() % kTileColumns == 0;
  return layout.group % kTileColumns == 0 && layout.group <= kPanelColumns;
}

template <typename T>
T ReadAt(const std::byte* src, size_t index) {
  T value;
  __builtin_memcpy(&value, src + index * sizeof(T), sizeof(T));
  return value;
}

// A group's codes of 4 bits as bytes, [columns/4][64 n][4 k]: what 8 bits are stored as.
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
  for (size_t block = 0; block < args.blocks; ++block) {
    const std::byte* w = args.w + block * layout.block_bytes();
    float* y = args.y + block * kBlockN;
    TileGemm<Tiles>({.x = args.x,
                     .x_stride = layout.row_bytes(),
                     .w = w,
                     .y = reinterpret_cast<std::byte*>(y),
                     .y_stride = args.ldy * sizeof(float),
                     .rows = args.rows,
                     .steps = layout.k_padded() / kTileColumns,
                     .blocks = 1});
    for (size_t row = 0; row < args.rows; ++row)
      Epilogue::WholeRow(layout, args.x + row * layout.row_bytes(), w + layout.group_bytes(),
                         y + row * args.ldy, y + row * args.ldy);
  }
}

// One group of one block over all rows.
template <typename Tiles, typename Epilogue>
void GroupTiles(const IntLayout& layout, const IntGemmArgs& args, size_t group,
                const std::byte* codes, const std::byte* scales, float* y) {
  alignas(64) float sums[kSumRows][kBlockN];  // int32
  int32_t x_sums[kSumRows];
  for (size_t begin = 0; begin < args.rows; begin += kSumRows) {
    const size_t rows = args.rows - begin < kSumRows ? args.rows - begin : kSumRows;
    const std::byte* x = args.x + begin * layout.row_bytes();
    TileGemm<Tiles>({.x = x + group * layout.group,
                     .x_stride = layout.row_bytes(),
                     .w = codes,
                     .y = reinterpret_cast<std::byte*>(sums),
                     .y_stride = sizeof(sums[0]),
                     .rows = rows,
                     .steps = layout.group / kTileColumns,
                     .blocks = 1});
    for (size_t r = 0; r < rows; ++r)
      x_sums[r] = ReadAt<int32_t>(x + r * layout.row_bytes() + layout.columns() + 8, group);
    Epilogue::AddGroup(layout, reinterpret_cast<const F16*>(scales), x_sums, rows, sums,
                       y + begin * args.ldy, args.ldy);
  }
}

template <typename Tiles, typename Epilogue>
void GroupedTiles(const IntLayout& layout, const IntGemmArgs& args) {
  alignas(64) std::byte panel[kPanelColumns * kBlockN];
  for (size_t block = 0; block < args.blocks; ++block) {
    const std::byte* w = args.w + block * layout.block_bytes();
    float* y = args.y + block * kBlockN;
    for (size_t row = 0; row < args.rows; ++row)
      __builtin_memset(y + row * args.ldy, 0, kBlockN * sizeof(float));
    for (size_t group = 0; group < layout.groups(); ++group, w += layout.group_bytes()) {
      if (layout.bits == 4) UnpackNibbles(w, layout.group, panel);
      GroupTiles<Tiles, Epilogue>(layout, args, group, layout.bits == 4 ? panel : w,
                                  w + layout.code_bytes(layout.group), y);
    }
    for (size_t row = 0; row < args.rows; ++row) {
      const std::byte* tail = args.x + row * layout.row_bytes() + layout.columns();
      Epilogue::ScaleRow(ReadAt<float>(tail, 0), reinterpret_cast<const float*>(w),
                         y + row * args.ldy, y + row * args.ldy);
    }
  }
}

// Requires FitsTiles.
template <typename Tiles, typename Epilogue>
void IntTileGemm(const IntLayout& layout, const IntGemmArgs& args) {
  layout.whole_rows() ? WholeRowTiles<Tiles, Epilogue>(layout, args)
                      : GroupedTiles<Tiles, Epilogue>(layout, args);
}

}  // namespace
}  // namespace pinion::kernels::impl
