#pragma once

// Integer products with weights in groups of columns: the int32 sums of a group stay in registers
// until they are scaled into floats, and so do the floats if there are registers for both. Groups
// are short, so sums that went through memory would cost as much time as the products. Include the
// ISA's AddIntProducts first: int_fours.inl.h or int_pairs.inl.h.

#include "kernels/impl/gemm.inl.h"
#include "kernels/integer.h"

namespace pinion::kernels::impl {
namespace {

// What an output has for each group besides its codes.
enum class GroupScales { kF16, kF16AndOffsets, kPowers, kE4m3 };

template <GroupScales kScales>
constexpr size_t kScaleBytes = kScales == GroupScales::kPowers || kScales == GroupScales::kE4m3
                                   ? 1
                                   : sizeof(F16);

// Those of kLanes outputs.
template <GroupScales kScales>
struct GroupLanes {
  Vec scale, offset = {};
  // scales: a group's, from some output on.
  GroupLanes(const std::byte* scales, size_t lane) {
    const std::byte* own = scales + lane * kScaleBytes<kScales>;
    if constexpr (kScales == GroupScales::kPowers) {
      scale = WidenPowers(own);
    } else if constexpr (kScales == GroupScales::kE4m3) {
      scale = WidenE4m3(own);
    } else {
      scale = WidenF16(own);
    }
    if constexpr (kScales == GroupScales::kF16AndOffsets)
      offset = WidenF16(own + kBlockN * sizeof(F16));
  }
  // y + scale * sum + offset * x_sum. sum: int32, of codes less the lowest if there are offsets,
  // else of codes; x_sum: of the group's activations.
  Vec AddTo(Vec y, Vec sum, Vec x_sum) const {
    if constexpr (kScales == GroupScales::kF16AndOffsets) y = Fma(offset, x_sum, y);
    return Fma(ToFloats(sum), scale, y);
  }
};

// Where a tile's totals of all groups are while it multiplies: in y, or in registers, of which 24
// of 32 then hold them and a group's sums. That takes tiles of half as many columns, which pays for
// groups below kLongGroup and more rows than one tile has, which would read the weights in two
// passes. For 64 rows of activations on Zen 4, groups of 32 took 0.89 (e2m1) and 0.93 (integers) of
// the time, groups of 128 as long as before or 4 % longer (pinion-bench
// --benchmark_filter='integer/avx512_bf16/.*/1b.gate_up/64').
enum class Totals { kInY, kInRegisters };
constexpr size_t kLongGroup = 64;
// With vectors of 256 bits there are 16 registers, too few for both.
template <typename Operand>
constexpr bool kTotalsFit = kLanes == 16 && kInRegisters<Operand>;

// An operand whose columns are in groups.
template <typename Operand, GroupScales kScales, Totals kTotals>
struct InGroups {};

// Some groups of one block. Of TileArgs<Operand>, what is the same for all of them.
template <typename Operand, GroupScales kScales, Totals kTotals>
struct TileArgs<InGroups<Operand, kScales, kTotals>> {
  const typename Operand::X* x = nullptr;  // [rows][groups * columns]
  size_t x_stride = 0;                     // elements
  const int32_t* x_sums = nullptr;         // [rows][groups]
  size_t x_sums_stride = 0;                // elements
  const std::byte* w = nullptr;            // the first group's codes for the tile's first output
  const std::byte* scales = nullptr;       // the first group's, of all 64 outputs
  size_t first_output = 0;
  size_t groups = 0, columns = 0, group_bytes = 0;  // group_bytes: from group to group
  int lowest = 0;
  float* y = nullptr;                   // [rows][64], added to
  const std::byte* prefetch = nullptr;  // lines to prefetch while the first group is read
  size_t prefetch_stride = 0;           // bytes from step to step
  Prefetch prefetch_to = Prefetch::kNear;
};

// Makes each sum a value of its own, in a register: GCC 12 otherwise keeps some of them in memory.
template <int kRows, int kColumns>
[[gnu::always_inline]] inline void KeepInRegisters(Vec (&sums)[kRows][kColumns]) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) KeepInRegister(sums[r][c]);
  }
}

template <typename Operand, GroupScales kScales, int kRows>
constexpr int kColumnsOf<InGroups<Operand, kScales, Totals::kInRegisters>, kRows> =
    kRows > 3 ? 2 : GemmColumns(kRows);

// y, [kRows][kColumns] vectors in rows of 64, while groups are added to it.
template <Totals kTotals, int kRows, int kColumns>
struct TotalsOf {
  float* y;

  explicit TotalsOf(float* y) : y(y) {}
  template <typename Lanes>
  [[gnu::always_inline]] void Add(const Lanes& lanes, int r, int c, Vec sum, Vec x_sum) {
    float* dst = y + static_cast<size_t>(r) * kBlockN + static_cast<size_t>(c) * kLanes;
    Store(dst, lanes.AddTo(Load(dst), sum, x_sum));
  }
  void Keep() {}
};

template <int kRows, int kColumns>
struct TotalsOf<Totals::kInRegisters, kRows, kColumns> {
  float* y;
  Vec totals[kRows][kColumns];

  [[gnu::always_inline]] explicit TotalsOf(float* y) : y(y) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int c = 0; c < kColumns; ++c) totals[r][c] = Load(y + r * kBlockN + c * kLanes);
    }
  }
  template <typename Lanes>
  [[gnu::always_inline]] void Add(const Lanes& lanes, int r, int c, Vec sum, Vec x_sum) {
    totals[r][c] = lanes.AddTo(totals[r][c], sum, x_sum);
  }
  [[gnu::always_inline]] void Keep() {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int c = 0; c < kColumns; ++c) Store(y + r * kBlockN + c * kLanes, totals[r][c]);
    }
  }
};

template <typename Operand, GroupScales kScales, Totals kTotals, int kRows, int kColumns,
          int kPrefetch>
void GroupTile(const TileArgs<InGroups<Operand, kScales, kTotals>>& args) {
  constexpr bool kOffsets = kScales == GroupScales::kF16AndOffsets;
  const TileArgs<InGroups<Operand, kScales, kTotals>> of = args;  // which y cannot be an alias of
  const std::byte *w = of.w, *scales = of.scales + of.first_output * kScaleBytes<kScales>;
  const std::byte* prefetch = of.prefetch;
  const int32_t* x_sums = of.x_sums;
  TotalsOf<kTotals, kRows, kColumns> totals(of.y + of.first_output);
  const size_t steps = of.columns / Operand::kStepK;
  TileArgs<Operand> group = {.x = of.x,
                             .x_stride = of.x_stride,
                             .w = &w,
                             .steps = &steps,
                             .segments = 1,
                             .w_stride = kBlockN * Operand::kBytes,
                             .prefetch = &prefetch,
                             .prefetch_stride = of.prefetch_stride,
                             .prefetch_to = of.prefetch_to};
  for (size_t i = of.groups; i > 0; --i) {
    Vec sums[kRows][kColumns];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      // The codes' lowest, added to each of them.
      const Vec first = kOffsets ? Set(0) : SpreadInt(of.lowest * x_sums[r * of.x_sums_stride]);
#pragma GCC unroll 16
      for (int c = 0; c < kColumns; ++c) sums[r][c] = first;
    }
    if constexpr (kInRegisters<Operand>) KeepInRegisters(sums);
    AddIntProducts<Operand, kRows, kColumns, kPrefetch>(group, sums);
    if constexpr (kInRegisters<Operand>) KeepInRegisters(sums);
    Vec x_sum[kRows];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
      x_sum[r] = kOffsets ? ToFloats(SpreadInt(x_sums[r * of.x_sums_stride])) : Set(0);
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) {
      const GroupLanes<kScales> lanes(scales, c * kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) totals.Add(lanes, r, c, sums[r][c], x_sum[r]);
    }
    group.x += of.columns;
    x_sums += 1;
    w += of.group_bytes;
    scales += of.group_bytes;
    prefetch += of.group_bytes;
  }
  totals.Keep();
}

template <typename Operand, GroupScales kScales, Totals kTotals, int kRows, int kColumns,
          int kPrefetch>
constexpr TileFn<InGroups<Operand, kScales, kTotals>>
    kTile<InGroups<Operand, kScales, kTotals>, kRows, kColumns, kPrefetch> =
        GroupTile<Operand, kScales, kTotals, kRows, kColumns, kPrefetch>;

// The same for sums in memory, as matrix tiles leave them, of codes less the lowest: some rows of
// one block's group, kAddedOutputs outputs from `output` on. scales: the group's.
constexpr size_t kAddedOutputs = 2 * kLanes;
template <typename T>
struct RowsOf {
  T* first;
  size_t stride;  // elements
};
template <GroupScales kScales>
void AddGroup(const IntLayout& layout, const std::byte* scales, size_t output,
              const int32_t* x_sums, size_t rows, RowsOf<const float> sums, RowsOf<float> y) {
  constexpr bool kOffsets = kScales == GroupScales::kF16AndOffsets;
  using Lanes = GroupLanes<kScales>;
  const Lanes lanes[] = {Lanes(scales, output), Lanes(scales, output + kLanes)};
  for (size_t r = 0; r < rows; ++r, sums.first += sums.stride, y.first += y.stride) {
    const Vec x_sum = kOffsets ? Set(static_cast<float>(x_sums[r])) : Set(0);
    const Vec lowest = SpreadInt(kOffsets ? 0 : layout.lowest * x_sums[r]);
#pragma GCC unroll 2
    for (size_t v = 0; v < 2; ++v) {
      float* dst = y.first + v * kLanes;
      const Vec sum = AddInt(Load(sums.first + v * kLanes), lowest);
      Store(dst, lanes[v].AddTo(Load(dst), sum, x_sum));
    }
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
