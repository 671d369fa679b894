#pragma once

// Integer products for a vector ISA: tiles of rows pass over chunks of K that stay in L1 or L2, as
// in gemm.inl.h. A chunk lies within a group of columns, whose int32 sums are scaled into floats;
// if whole rows are one group the int32 sums themselves are kept from chunk to chunk. Include the
// ISA's multiplication of bytes first: int_fours.inl.h or int_pairs.inl.h.

#include "kernels/impl/gemm.inl.h"
#include "kernels/impl/int_groups.inl.h"
#include "kernels/impl/int_outliers.inl.h"
#include "kernels/integer.h"

namespace pinion::kernels::impl {
namespace {

// Columns of a chunk, at most. Every chunk loads and stores the sums, so chunks are long: copies of
// activations must stay in L1; without copies, and with many tiles, codes stay in L2.
constexpr size_t kIntChunk = 512, kLongIntChunk = 2048;
template <typename Operand>
constexpr bool kTakesRows = std::is_same_v<typename Operand::X, int8_t>;
template <typename Operand>
constexpr size_t IntChunkColumns(size_t tiles) {
  return kTakesRows<Operand> && tiles > kFewTiles ? kLongIntChunk : kIntChunk;
}

// `columns` columns of one block's codes. While all rows pass over them, the codes `ahead` bytes
// further on are prefetched, spread evenly over the tiles, as in gemm.inl.h.
struct IntChunk {
  const std::byte* w;
  size_t columns, ahead;
  Prefetch prefetch;
};

// Points args at rows of activations from a chunk's column on, in the operand's form: the bytes
// themselves, or a copy in `widened`.
template <typename Operand>
void TakeRows(const int8_t* x, size_t x_stride, size_t rows, size_t columns,
              typename Operand::X (*widened)[kIntChunk], TileArgs<Operand>& args) {
  if constexpr (kTakesRows<Operand>) {
    args.x = x;
    args.x_stride = x_stride;
  } else {
    for (size_t r = 0; r < rows; ++r) {
      for (size_t i = 0; i < columns; i += Operand::kWidened)
        Operand::Widen(x + r * x_stride + i, widened[r] + i);
    }
    args.x = widened[0];
    args.x_stride = kIntChunk;
  }
}

// y (int32) = or += x w, for codes of 4 bits.
template <typename Operand, int kRows, int kColumns, int kPrefetch>
void SumTile(const TileArgs<Operand>& args) {
  Vec sums[kRows][kColumns];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c)
      sums[r][c] = args.accumulate ? Load(args.y + r * args.y_stride + c * kLanes) : Set(0);
  }
  AddIntProducts<Operand, kRows, kColumns, kPrefetch>(args, sums);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) Store(args.y + r * args.y_stride + c * kLanes, sums[r][c]);
  }
}
template <int kRows, int kColumns, int kPrefetch>
constexpr TileFn<OperandU4> kTile<OperandU4, kRows, kColumns, kPrefetch> =
    SumTile<OperandU4, kRows, kColumns, kPrefetch>;

// y[rows of the tile][64] (int32) = or += x * w. x: the tile's first row, at the chunk's column.
template <typename Operand>
void RunTile(const IntLayout& layout, const IntChunk& chunk, const RowGroups& tiles, size_t tile,
             const int8_t* x, float* y, size_t ldy, bool accumulate) {
  constexpr size_t kStepBytes = kBlockN * Operand::kBytes;
  const size_t rows = tiles.Size(tile), steps = chunk.columns / Operand::kStepK;
  const size_t columns = static_cast<size_t>(GemmColumns(static_cast<int>(rows))) * kLanes;
  const size_t passes = kBlockN / columns, units = tiles.count * passes;
  const std::byte* next = chunk.w + (units == 1 ? kPrefetchAheadBytes : chunk.ahead);
  TileArgs<Operand> args = {.segments = 1, .w_stride = kStepBytes};
  alignas(64) typename Operand::X widened[kTileRows][kIntChunk];
  TakeRows<Operand>(x, layout.row_bytes(), rows, chunk.columns, widened, args);
  args.steps = &steps;
  args.y_stride = ldy;
  args.accumulate = accumulate;
  for (size_t pass = 0; pass < passes; ++pass) {
    const std::byte* w = chunk.w + pass * columns * Operand::kBytes;
    const Share share(kStepBytes / kLineBytes, tile * passes + pass, units);
    const std::byte* prefetch = next + share.begin * steps * kLineBytes;
    args.w = &w;
    args.y = y + pass * columns;
    args.prefetch = &prefetch;
    args.prefetch_stride = (share.end - share.begin) * kLineBytes;
    args.prefetch_to = chunk.prefetch;
    const bool asks = chunk.prefetch != Prefetch::kNone;
    GemmTile<Operand>(rows, asks ? share.end - share.begin : 0)(args);
  }
}

// Converts one block's row of exact int32 sums to float32. The codes' lowest and the activations'
// zero point are subtracted before, in integers, so that nothing is rounded but the result.
void FinishWholeRow(const IntLayout& layout, const std::byte* row, const std::byte* tail,
                    const float* whole, float* y) {
  const RowTail of = TailOf(layout, row);
  const Vec constant = SpreadInt(layout.lowest * SumsOf(layout, row)[0]);
  const Vec zero_point = SpreadInt(of.zero_point), row_scale = Set(of.scale);
  const auto* scales = reinterpret_cast<const float*>(tail);
  const float* sums = scales + kBlockN;  // int32
  for (size_t i = 0; i < kBlockN; i += kLanes) {
    Vec sum = AddInt(Load(whole + i), constant);
    if (of.zero_point != 0) sum = SubInt(sum, MulInt(Load(sums + i), zero_point));
    Store(y + i, ToFloats(sum) * Load(scales + i) * row_scale);
  }
}

// ---- Passes: at most kPassRows rows by one block. Their sums are kept in a dense buffer, which
// stays in L1 from chunk to chunk; in y, rows are often a power of two apart and would evict each
// other from every cache.
constexpr size_t kPassRows = 48;

template <typename Operand>
void PassOfWholeRows(const IntLayout& layout, const IntGemmArgs& args) {
  alignas(64) float sums[kPassRows][kBlockN];  // int32
  const RowGroups tiles(args.rows, kTileRows);
  const size_t row_bytes = layout.row_bytes(), k_padded = layout.k_padded();
  const size_t most = IntChunkColumns<Operand>(tiles.count);
  for (size_t k = 0; k < k_padded; k += most) {
    const size_t columns = k_padded - k < most ? k_padded - k : most;
    const IntChunk chunk{args.w + layout.code_bytes(k), columns, layout.code_bytes(columns),
                         args.prefetch};
    for (size_t tile = 0; tile < tiles.count; ++tile) {
      const size_t row = tiles.Begin(tile);
      const auto* x = reinterpret_cast<const int8_t*>(args.x + row * row_bytes + k);
      RunTile<Operand>(layout, chunk, tiles, tile, x, sums[row], kBlockN, k > 0);
    }
  }
  for (size_t row = 0; row < args.rows; ++row)
    FinishWholeRow(layout, args.x + row * row_bytes, args.w + layout.group_bytes(), sums[row],
                   args.y + row * args.ldy);
  AddOutliers(layout, args.x, args.rows, args.w, args.y, args.ldy);
}

// y = sums (which may be y) times the row's scale and the outputs' scales.
void ScaleRow(float row_scale, const float* scales, const float* sums, float* y) {
  for (size_t i = 0; i < kBlockN; i += kLanes)
    Store(y + i, Load(sums + i) * Load(scales + i) * Set(row_scale));
}

// Some groups of one block, over which all rows pass.
struct GroupChunk {
  const std::byte* w;
  size_t first, groups;  // the first one's number
  size_t ahead;          // bytes from which on codes are prefetched, as in IntChunk
  Prefetch prefetch;
};

// y[rows of the tile][64] += x * w. x: the tile's first row.
template <typename Operand, GroupScales kScales, Totals kTotals>
void RunGroupTile(const IntLayout& layout, const GroupChunk& chunk, const RowGroups& tiles,
                  size_t tile, const std::byte* x, float (*y)[kBlockN]) {
  using Groups = InGroups<Operand, kScales, kTotals>;
  constexpr size_t kStepBytes = kBlockN * Operand::kBytes;
  const size_t rows = tiles.Size(tile), columns = chunk.groups * layout.group;
  const size_t outputs = TileColumns<Groups>(rows) * kLanes;
  const size_t passes = kBlockN / outputs, units = tiles.count * passes;
  const std::byte* next = chunk.w + (units == 1 ? kPrefetchAheadBytes : chunk.ahead);
  alignas(64) typename Operand::X widened[kTileRows][kIntChunk];
  TileArgs<Operand> taken;
  TakeRows<Operand>(reinterpret_cast<const int8_t*>(x) + chunk.first * layout.group,
                    layout.row_bytes(), rows, columns, widened, taken);
  TileArgs<Groups> args = {.x = taken.x, .x_stride = taken.x_stride};
  args.x_sums = SumsOf(layout, x) + chunk.first;
  args.x_sums_stride = layout.row_bytes() / sizeof(int32_t);
  args.scales = chunk.w + layout.code_bytes(layout.group);
  args.groups = chunk.groups;
  args.columns = layout.group;
  args.group_bytes = layout.group_bytes();
  args.lowest = layout.lowest;
  args.y = y[0];
  args.prefetch_to = chunk.prefetch;
  for (size_t pass = 0; pass < passes; ++pass) {
    const Share share(kStepBytes / kLineBytes, tile * passes + pass, units);
    args.first_output = pass * outputs;
    args.w = chunk.w + args.first_output * Operand::kBytes;
    args.prefetch = next + share.begin * (layout.group / Operand::kStepK) * kLineBytes;
    args.prefetch_stride = (share.end - share.begin) * kLineBytes;
    const bool asks = chunk.prefetch != Prefetch::kNone;
    GemmTile<Groups>(rows, asks ? share.end - share.begin : 0)(args);
  }
}

template <typename Operand, GroupScales kScales, Totals kTotals>
void PassOfGroups(const IntLayout& layout, const IntGemmArgs& args) {
  alignas(64) float y[kPassRows][kBlockN];
  const RowGroups tiles(args.rows, kTileRows);
  const size_t row_bytes = layout.row_bytes(), groups = layout.groups();
  const size_t group_bytes = layout.group_bytes();
  const size_t columns = IntChunkColumns<Operand>(tiles.count);
  const RowGroups chunks(groups, layout.group < columns ? columns / layout.group : 1);
  __builtin_memset(y, 0, args.rows * sizeof(y[0]));
  for (size_t i = 0; i < chunks.count; ++i) {
    const GroupChunk chunk{args.w + chunks.Begin(i) * group_bytes, chunks.Begin(i), chunks.Size(i),
                           chunks.Size(i) * group_bytes, args.prefetch};
    for (size_t tile = 0; tile < tiles.count; ++tile) {
      const size_t row = tiles.Begin(tile);
      RunGroupTile<Operand, kScales, kTotals>(layout, chunk, tiles, tile, args.x + row * row_bytes,
                                              &y[row]);
    }
  }
  const std::byte* tail = args.w + groups * group_bytes;
  for (size_t row = 0; row < args.rows; ++row)
    ScaleRow(TailOf(layout, args.x + row * row_bytes).scale, reinterpret_cast<const float*>(tail),
             y[row], args.y + row * args.ldy);
  AddOutliers(layout, args.x, args.rows, args.w, args.y, args.ldy);
}

using PassFn = void (*)(const IntLayout&, const IntGemmArgs&);

template <typename Operand, GroupScales kScales>
PassFn PassOfGroupsFor(const IntLayout& layout, size_t rows) {
  if constexpr (kTotalsFit<Operand>) {
    if (layout.group < kLongGroup && rows > kTileRows)
      return PassOfGroups<Operand, kScales, Totals::kInRegisters>;
  }
  return PassOfGroups<Operand, kScales, Totals::kInY>;
}

template <typename Operand>
PassFn PassFor(const IntLayout& layout, size_t rows) {
  if (layout.whole_rows()) return PassOfWholeRows<Operand>;
  return layout.has_offsets ? PassOfGroupsFor<Operand, GroupScales::kF16AndOffsets>(layout, rows)
                            : PassOfGroupsFor<Operand, GroupScales::kF16>(layout, rows);
}

PassFn PassForE2M1(const IntLayout& layout, size_t rows) {
  return layout.scale_type == ScaleType::kPower
             ? PassOfGroupsFor<OperandE2M1, GroupScales::kPowers>(layout, rows)
             : PassOfGroupsFor<OperandE2M1, GroupScales::kE4m3>(layout, rows);
}

void IntGemm(const IntLayout& layout, const IntGemmArgs& args) {
  // Activations are widened, if they have to be, one chunk at a time.
  const bool longer = !layout.whole_rows() && layout.group > kIntChunk;
  const PassFn run = layout.e2m1()              ? PassForE2M1(layout, args.rows)
                     : layout.bits == 4         ? PassFor<OperandU4>(layout, args.rows)
                     : args.rows == 1 || longer ? PassFor<OperandU8OfOneRow>(layout, args.rows)
                                                : PassFor<OperandU8>(layout, args.rows);
  const RowGroups passes(args.rows, kPassRows);
  IntGemmArgs pass = args;
  pass.blocks = 1;
  for (size_t block = 0; block < args.blocks; ++block) {
    pass.w = args.w + block * layout.block_bytes();
    for (size_t i = 0; i < passes.count; ++i) {
      const size_t row = passes.Begin(i);
      pass.x = args.x + row * layout.row_bytes();
      pass.y = args.y + row * args.ldy + block * kBlockN;
      pass.rows = passes.Size(i);
      run(layout, pass);
    }
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
