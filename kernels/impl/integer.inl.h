#pragma once

// Integer products for a vector ISA: chunks of K that stay in L1 pass under tiles of rows, as in
// gemm.inl.h. A chunk is a group of columns, whose int32 sums are scaled into y; where whole rows
// are one group the int32 sums themselves wait in y's memory from chunk to chunk. Include the ISA's
// vector and its Dot first:
//   Dot(Vec w, Vec x, Vec sum)   sum + unsigned bytes of w times signed bytes of x, in int32 lanes

#include "kernels/impl/tile.inl.h"
#include "kernels/integer.h"

namespace pinion::kernels::impl {
namespace {

struct OperandU8 {
  using X = int8_t;
  static constexpr size_t kStepK = 4, kSubs = 1, kBytes = 4;
  template <bool half>
  static Vec Load(const std::byte* w, size_t) {
    return LoadWords<half>(w);
  }
  static Vec Spread(const int8_t* x, size_t) { return SpreadWord(x); }
  static Vec MultiplyAdd(Vec w, Vec x, Vec sum) { return Dot(w, x, sum); }
};

struct OperandU4 {
  using X = int8_t;
  static constexpr size_t kStepK = 8, kSubs = 2, kBytes = 4;
  template <bool half>
  static Vec Load(const std::byte* w, size_t sub) {
    const Vec nibbles = LoadWords<half>(w);
    return sub == 0 ? LowNibbles(nibbles) : HighNibbles(nibbles);
  }
  static Vec Spread(const int8_t* x, size_t sub) { return SpreadWord(x + 4 * sub); }
  static Vec MultiplyAdd(Vec w, Vec x, Vec sum) { return Dot(w, x, sum); }
};

// Sums of whole rows go through memory once a chunk, so chunks are long.
constexpr size_t kIntChunk = 512;
constexpr size_t kIntPrefetchBytes = 8 * 1024;  // ahead of the first rows; covers memory's latency
constexpr size_t kWordColumns = 4;              // bytes of a column in a step

template <typename Operand, int kRows>
void IntRows(TileArgs<Operand> args, const std::byte* w, bool prefetch) {
  constexpr int kColumns = GemmColumns(kRows);
  constexpr size_t kWidth = static_cast<size_t>(kColumns) * kLanes;
  constexpr int kLines = static_cast<int>(kWidth * kWordColumns / 64);
  float* y = args.y;
  for (size_t column = 0; column < kBlockN; column += kWidth) {
    const std::byte* at = w + column * kWordColumns;
    const std::byte* ahead = at + kIntPrefetchBytes;
    args.w = &at;
    args.prefetch = &ahead;
    args.y = y + column;
    if (prefetch) {
      Tile<Operand, kRows, kColumns, kLines>(args);
    } else {
      Tile<Operand, kRows, kColumns, 0>(args);
    }
  }
}

// y[rows][64] (int32) = or += x * w over `columns` columns.
template <typename Operand>
void IntChunk(const IntLayout& layout, const int8_t* x, size_t rows, const std::byte* w,
              size_t columns, float* y, size_t ldy, bool accumulate, bool prefetch) {
  const size_t steps = columns / Operand::kStepK;
  TileArgs<Operand> tile = {.segments = 1, .w_stride = kBlockN * kWordColumns};
  tile.x = x;
  tile.x_stride = layout.row_bytes();
  tile.steps = &steps;
  tile.y = y;
  tile.y_stride = ldy;
  tile.accumulate = accumulate;
  static_assert(kTileRows == 6);
  switch (rows) {
    case 1:
      return IntRows<Operand, 1>(tile, w, prefetch);
    case 2:
      return IntRows<Operand, 2>(tile, w, prefetch);
    case 3:
      return IntRows<Operand, 3>(tile, w, prefetch);
    case 4:
      return IntRows<Operand, 4>(tile, w, prefetch);
    case 5:
      return IntRows<Operand, 5>(tile, w, prefetch);
    default:
      return IntRows<Operand, 6>(tile, w, prefetch);
  }
}

struct RowTail {
  float scale;
  int32_t zero_point;
};
RowTail TailOf(const IntLayout& layout, const std::byte* row) {
  RowTail tail;
  __builtin_memcpy(&tail, row + layout.columns(), sizeof(tail));
  return tail;
}
const int32_t* SumsOf(const IntLayout& layout, const std::byte* row) {
  return reinterpret_cast<const int32_t*>(row + layout.columns() + sizeof(RowTail));
}

// One block's row of exact int32 sums into float32: the codes' lowest and the activations' zero
// point are taken out while everything is whole.
void FinishWholeRow(const IntLayout& layout, const std::byte* row, const std::byte* tail,
                    float* y) {
  const RowTail of = TailOf(layout, row);
  const Vec constant = SpreadInt(layout.lowest * SumsOf(layout, row)[0]);
  const Vec zero_point = SpreadInt(of.zero_point), row_scale = Set(of.scale);
  const auto* scales = reinterpret_cast<const float*>(tail);
  const float* sums = scales + kBlockN;  // int32
  for (size_t i = 0; i < kBlockN; i += kLanes) {
    Vec sum = AddInt(Load(y + i), constant);
    if (of.zero_point != 0) sum = SubInt(sum, MulInt(Load(sums + i), zero_point));
    Store(y + i, ToFloats(sum) * Load(scales + i) * row_scale);
  }
}

template <typename Operand>
void WholeRows(const IntLayout& layout, const IntGemmArgs& args) {
  const RowGroups groups(args.rows, kTileRows);
  const size_t row_bytes = layout.row_bytes(), k_padded = layout.k_padded();
  for (size_t block = 0; block < args.blocks; ++block) {
    const std::byte* w = args.w + block * layout.block_bytes();
    float* y = args.y + block * kBlockN;
    for (size_t k = 0; k < k_padded; k += kIntChunk) {
      const size_t columns = k_padded - k < kIntChunk ? k_padded - k : kIntChunk;
      for (size_t group = 0; group < groups.count; ++group) {
        const size_t row = groups.Begin(group);
        const auto* x = reinterpret_cast<const int8_t*>(args.x + row * row_bytes + k);
        IntChunk<Operand>(layout, x, groups.Size(group), w + layout.code_bytes(k), columns,
                          y + row * args.ldy, args.ldy, k > 0, group == 0);
      }
    }
    for (size_t row = 0; row < args.rows; ++row)
      FinishWholeRow(layout, args.x + row * row_bytes, w + layout.group_bytes(),
                     y + row * args.ldy);
  }
}

// y += scale * sum + offset * (sum of the group's activations), for one row of one block's group.
// Without offsets the codes' lowest stands for them.
template <bool kOffsets>
void AddGroup(const float* sums, const F16* scales, int32_t constant, float x_sum, bool first,
              float* y) {
  const Vec whole = SpreadInt(constant), spread = Set(x_sum);
  for (size_t i = 0; i < kBlockN; i += kLanes) {
    Vec sum = Load(sums + i);
    if constexpr (!kOffsets) sum = AddInt(sum, whole);
    Vec result = ToFloats(sum) * WidenF16(scales + i);
    if constexpr (kOffsets) result = Fma(WidenF16(scales + kBlockN + i), spread, result);
    Store(y + i, first ? result : Load(y + i) + result);
  }
}

void ScaleRow(float row_scale, const float* scales, float* y) {
  for (size_t i = 0; i < kBlockN; i += kLanes)
    Store(y + i, Load(y + i) * Load(scales + i) * Set(row_scale));
}

template <typename Operand, bool kOffsets>
void Grouped(const IntLayout& layout, const IntGemmArgs& args) {
  alignas(64) float sums[kTileRows][kBlockN];  // int32
  const RowGroups tiles(args.rows, kTileRows);
  const size_t row_bytes = layout.row_bytes(), groups = layout.groups();
  for (size_t block = 0; block < args.blocks; ++block) {
    const std::byte* w = args.w + block * layout.block_bytes();
    float* y = args.y + block * kBlockN;
    for (size_t group = 0; group < groups; ++group, w += layout.group_bytes()) {
      const auto* scales = reinterpret_cast<const F16*>(w + layout.code_bytes(layout.group));
      for (size_t tile = 0; tile < tiles.count; ++tile) {
        const size_t begin = tiles.Begin(tile), rows = tiles.Size(tile);
        const std::byte* x = args.x + begin * row_bytes;
        IntChunk<Operand>(layout, reinterpret_cast<const int8_t*>(x + group * layout.group), rows,
                          w, layout.group, sums[0], kBlockN, false, tile == 0);
        for (size_t r = 0; r < rows; ++r) {
          const int32_t x_sum = SumsOf(layout, x + r * row_bytes)[group];
          AddGroup<kOffsets>(sums[r], scales, layout.lowest * x_sum, static_cast<float>(x_sum),
                             group == 0, y + (begin + r) * args.ldy);
        }
      }
    }
    for (size_t row = 0; row < args.rows; ++row)
      ScaleRow(TailOf(layout, args.x + row * row_bytes).scale, reinterpret_cast<const float*>(w),
               y + row * args.ldy);
  }
}

void IntGemm(const IntLayout& layout, const IntGemmArgs& args) {
  if (layout.whole_rows()) {
    layout.bits == 8 ? WholeRows<OperandU8>(layout, args) : WholeRows<OperandU4>(layout, args);
  } else if (layout.has_offsets) {
    layout.bits == 8 ? Grouped<OperandU8, true>(layout, args)
                     : Grouped<OperandU4, true>(layout, args);
  } else {
    layout.bits == 8 ? Grouped<OperandU8, false>(layout, args)
                     : Grouped<OperandU4, false>(layout, args);
  }
}

// ---- Rounding of activations.
template <typename T>
Vec LoadActivations(const T* x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return Load(x);
  } else {
    return WidenBf16(x);
  }
}

template <typename T>
float LargestMagnitude(const T* x, size_t n) {
  const size_t whole = n - n % kLanes;
  Vec largest = Set(0);
  for (size_t i = 0; i < whole; i += kLanes)
    largest = Max(Magnitude(LoadActivations(x + i)), largest);
  float result = MaxLane(largest);
  for (size_t i = whole; i < n; ++i) {
    const float magnitude = __builtin_fabsf(Widen(x[i]));
    if (magnitude > result) result = magnitude;
  }
  return result;
}

int32_t RoundOne(float x, float scale, int32_t zero_point) {
  const float rounded = __builtin_nearbyintf(x / scale) + static_cast<float>(zero_point);
  return static_cast<int32_t>(rounded < -128 ? -128 : rounded > 127 ? 127 : rounded);
}

template <typename T>
void RoundValues(const T* x, size_t n, float scale, int32_t zero_point, int8_t* dst) {
  const size_t whole = n - n % kLanes;
  const Vec divisor = Set(scale), shift = Set(static_cast<float>(zero_point));
  for (size_t i = 0; i < whole; i += kLanes) {
    const Vec rounded = RoundToInteger(LoadActivations(x + i) / divisor) + shift;
    StoreBytes(dst + i, Max(Min(rounded, Set(127)), Set(-128)));
  }
  for (size_t i = whole; i < n; ++i)
    dst[i] = static_cast<int8_t>(RoundOne(Widen(x[i]), scale, zero_point));
}

template <typename T>
void RoundTyped(const IntLayout& layout, const RoundArgs& args) {
  const auto* x = static_cast<const T*>(args.x);
  auto* dst = reinterpret_cast<int8_t*>(args.dst);
  RowTail tail{args.rounding.scale, args.rounding.zero_point};
  if (tail.scale == 0) {
    const float largest = LargestMagnitude(x, layout.k);
    tail = {largest > 0 ? largest / 127 : 1, 0};
  }
  RoundValues(x, layout.k, tail.scale, tail.zero_point, dst);
  __builtin_memset(dst + layout.k, 0, layout.columns() - layout.k);
  __builtin_memcpy(dst + layout.columns(), &tail, sizeof(tail));
  auto* sums = reinterpret_cast<int32_t*>(args.dst + layout.columns() + sizeof(tail));
  const size_t width = layout.whole_rows() ? layout.columns() : layout.group;
  for (size_t group = 0; group < layout.groups(); ++group) {
    int32_t sum = 0;
    for (size_t i = group * width; i < (group + 1) * width; ++i) sum += dst[i];
    sums[group] = sum;
  }
}

void Round(const IntLayout& layout, const RoundArgs& args) {
  if (args.x_type == Dtype::kF32) {
    RoundTyped<float>(layout, args);
  } else {
    RoundTyped<Bf16>(layout, args);
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
