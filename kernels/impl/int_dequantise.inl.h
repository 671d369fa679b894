#pragma once

// Converts blocks of integer weights to blocks of floats (IntTable::dequantise). Include
// integer.inl.h first.

#include "kernels/impl/int_scales.inl.h"

namespace pinion::kernels::impl {
namespace {

// Columns converted at a time: few enough for the codes of all outputs to stay in L1.
constexpr size_t kDequantisedColumns = 64;

// Writes the weights of two neighbouring columns for kLanes outputs; `dst`: the panel's first
// column.
struct PanelBf16 {
  static void Put(std::byte* dst, size_t column, size_t lane, Vec even, Vec odd) {
    Store(reinterpret_cast<float*>(dst) + column / 2 * kBlockN + lane, PairsOfBf16(even, odd));
  }
};
struct PanelF16 {
  static void Put(std::byte* dst, size_t column, size_t lane, Vec even, Vec odd) {
    auto* row = reinterpret_cast<F16*>(dst) + column * kBlockN + lane;
    StoreF16(row, even);
    StoreF16(row + kBlockN, odd);
  }
};

// The forms of a word's codes.
struct CodesU8 {
  static constexpr int kBits = 8;
  static Vec WeightsOf(const LaneScales& lanes, Vec codes) { return lanes.WeightsOf(codes); }
};
struct CodesU4 : CodesU8 {
  static constexpr int kBits = 4;
};
struct LookedUpE2M1 {
  static constexpr int kBits = 8;
  static Vec WeightsOf(const LaneScales& lanes, Vec codes) { return lanes.WeightsOfE2M1(codes); }
};
struct CodesE2M1 {
  static constexpr int kBits = 4;
};

template <typename Panel, typename Codes, int kEven, int kOdd>
void PutPair(const LaneScales& lanes, Vec word, std::byte* dst, size_t column, size_t lane) {
  Panel::Put(dst, column, lane, Codes::WeightsOf(lanes, FieldOf<kEven, Codes::kBits>(word)),
             Codes::WeightsOf(lanes, FieldOf<kOdd, Codes::kBits>(word)));
}

// One word of codes for each of kLanes outputs.
template <typename Panel, typename Codes>
void PutWord(const LaneScales& lanes, Vec word, std::byte* dst, size_t column, size_t lane) {
  if constexpr (std::is_same_v<Codes, CodesE2M1>) {
    PutWord<Panel, LookedUpE2M1>(lanes, LookUpE2M1(LowNibbles(word)), dst, column, lane);
    PutWord<Panel, LookedUpE2M1>(lanes, LookUpE2M1(HighNibbles(word)), dst, column + 4, lane);
  } else {
    PutPair<Panel, Codes, 0, 8>(lanes, word, dst, column, lane);
    PutPair<Panel, Codes, 16, 24>(lanes, word, dst, column + 2, lane);
    if constexpr (Codes::kBits == 4) {
      PutPair<Panel, Codes, 4, 12>(lanes, word, dst, column + 4, lane);
      PutPair<Panel, Codes, 20, 28>(lanes, word, dst, column + 6, lane);
    }
  }
}

// Columns [begin, end) of one group, whose codes for column `first` are at w.
template <typename Panel, typename Codes>
void DequantiseRun(const IntLayout& layout, const std::byte* w, size_t first, size_t begin,
                   size_t end, const std::byte* scales, const float* own, std::byte* dst) {
  constexpr size_t kStep = 32 / Codes::kBits;
  for (size_t lane = 0; lane < kBlockN; lane += kLanes) {
    const LaneScales lanes = ScalesAt(layout, scales, own, lane);
    for (size_t column = begin; column < end; column += kStep) {
      const std::byte* words = w + ((column - first) / kStep * kBlockN + lane) * sizeof(uint32_t);
      PutWord<Panel, Codes>(lanes, LoadWords<false>(words), dst, column, lane);
    }
  }
}

template <typename Panel, typename Codes>
void DequantiseBlock(const IntLayout& layout, const std::byte* block, std::byte* dst) {
  const size_t k_padded = layout.k_padded(), width = layout.whole_rows() ? k_padded : layout.group;
  const auto* own = reinterpret_cast<const float*>(block + layout.groups() * layout.group_bytes());
  size_t done = 0;
  for (size_t group = 0; group < layout.groups(); ++group) {
    const std::byte* w = block + group * layout.group_bytes();
    const size_t first = group * width;
    const size_t last = first + width < k_padded ? first + width : k_padded;
    while (done < last) {
      const size_t end = done + kDequantisedColumns < last ? done + kDequantisedColumns : last;
      DequantiseRun<Panel, Codes>(layout, w, first, done, end, w + layout.code_bytes(width), own,
                                  dst);
      done = end;
    }
  }
  constexpr size_t kElement = sizeof(uint16_t);
  __builtin_memset(dst + done * kBlockN * kElement, 0, (k_padded - done) * kBlockN * kElement);
}

template <typename Panel>
void DequantiseTo(const IntLayout& layout, const std::byte* block, std::byte* dst) {
  if (layout.e2m1()) return DequantiseBlock<Panel, CodesE2M1>(layout, block, dst);
  layout.bits == 8 ? DequantiseBlock<Panel, CodesU8>(layout, block, dst)
                   : DequantiseBlock<Panel, CodesU4>(layout, block, dst);
}

void Dequantise(const IntLayout& layout, const std::byte* block, Dtype dst_type, std::byte* dst) {
  dst_type == Dtype::kBf16 ? DequantiseTo<PanelBf16>(layout, block, dst)
                           : DequantiseTo<PanelF16>(layout, block, dst);
}

}  // namespace
}  // namespace pinion::kernels::impl
