#pragma once

// The second product of attention: weights by values.

#include "kernels/impl/attention_strip.inl.h"

namespace pinion::kernels::impl {
namespace {

// All rows of one strip of output columns, kColumns vectors (or half a vector) wide.
template <typename Operand, int kColumns, bool kHalf>
void ValueColumns(TileArgs<Operand> tile, size_t rows) {
  constexpr int kLines = (kColumns * kLanes * Operand::kBytes + 63) / 64;
  constexpr int kMost = kColumns == 1 ? kNarrowRows : kTileRows;
  const typename Operand::X* x = tile.x;
  float* y = tile.y;
  ForRowGroups<kMost>(rows, [&]<int kRows>(size_t row) {
    tile.x = x + row * tile.x_stride;
    tile.y = y + row * tile.y_stride;
    if (row == 0) {
      Tile<Operand, kRows, kColumns, kLines, kHalf>(tile);
    } else {
      Tile<Operand, kRows, kColumns, 0, kHalf>(tile);
    }
  });
}

// The values of a strip's first tokens, as segments of a Tile.
struct ValueSegments {
  const std::byte* values[Strip::kMaxPieces + 1];
  size_t steps[Strip::kMaxPieces + 1];
  size_t count = 0;
  void Add(const std::byte* first, size_t n) {
    values[count] = first;
    steps[count++] = n;
  }
};

// Cuts the strip off after `live` tokens. The slots behind may hold what another request left
// there, and 0 * infinity is NaN: a weight of 0 is not enough. Where `live` ends within a step (a
// pair of tokens), that step is copied without the other token.
template <typename Operand>
ValueSegments CutValues(const AttentionArgs& args, const Strip& strip, size_t live,
                        Scratch<Operand>& scratch) {
  constexpr size_t kElement = Operand::kBytes / Operand::kStepK;
  ValueSegments cut;
  size_t steps = live / Operand::kStepK;
  for (size_t i = 0; i < strip.pieces && live > 0; ++i) {
    const size_t whole = steps < strip.value_steps[i] ? steps : strip.value_steps[i];
    if (whole > 0) cut.Add(strip.values[i], whole);
    steps -= whole;
    if (whole == strip.value_steps[i]) continue;
    if (live % Operand::kStepK != 0) {
      const std::byte* from = strip.values[i] + whole * args.head_dim * Operand::kBytes;
      __builtin_memset(scratch.last_values, 0, args.head_dim * Operand::kBytes);
      for (size_t d = 0; d < args.head_dim; ++d) {
        const size_t at = d * Operand::kBytes;
        __builtin_memcpy(scratch.last_values + at, from + at, kElement);
      }
      cut.Add(scratch.last_values, 1);
    }
    break;
  }
  return cut;
}

// Whether the values from token `from` on are finite (from: of the strip, cut: all of it).
template <typename Operand>
bool AreFinite(const AttentionArgs& args, const ValueSegments& cut, size_t from) {
  const typename Operand::X zeros[Operand::kStepK] = {};
  size_t skip = from / Operand::kStepK;
  Vec sum = Set(0);
  for (size_t i = 0; i < cut.count; ++i) {
    for (size_t step = 0; step < cut.steps[i]; ++step) {
      if (skip > 0) {
        --skip;
        continue;
      }
      const std::byte* w = cut.values[i] + step * args.head_dim * Operand::kBytes;
      for (size_t d = 0; d < args.head_dim; d += kLanes, w += kLanes * Operand::kBytes) {
        for (size_t sub = 0; sub < Operand::kSubs; ++sub) {
          const Vec values = args.head_dim - d < kLanes ? Operand::template Load<true>(w, sub)
                                                        : Operand::template Load<false>(w, sub);
          sum = Operand::MultiplyAdd(values, Operand::Spread(zeros, sub), sum);
        }
      }
    }
  }
  return SumLanes(sum) == 0;
}

// out += weights * values for some rows; the next strip's values are prefetched in step.
template <typename Operand>
void AddValues(const AttentionArgs& args, const ValueSegments& cut, const Strip& next,
               size_t first_row, size_t rows, Scratch<Operand>& scratch) {
  const std::byte *w[Strip::kMaxPieces + 1], *prefetch[Strip::kMaxPieces + 1];
  TileArgs<Operand> tile = {.x = scratch.weights[first_row],
                            .x_stride = kStripTokens,
                            .w = w,
                            .steps = cut.steps,
                            .segments = cut.count,
                            .w_stride = args.head_dim * Operand::kBytes,
                            .y_stride = args.head_dim,
                            .accumulate = true,
                            .prefetch = prefetch};
  for (size_t column = 0; column < args.head_dim;) {
    for (size_t i = 0; i < cut.count; ++i) {
      w[i] = cut.values[i] + column * Operand::kBytes;
      prefetch[i] = next.values[i % Strip::kMaxPieces] + column * Operand::kBytes;
    }
    tile.y = args.out + first_row * args.head_dim + column;
    const size_t left = args.head_dim - column;
    if (left >= kWide * kLanes) {
      ValueColumns<Operand, kWide, false>(tile, rows);
      column += kWide * kLanes;
    } else if (left >= kLanes) {
      ValueColumns<Operand, 1, false>(tile, rows);
      column += kLanes;
    } else {
      if constexpr (kLanes > 8) ValueColumns<Operand, 1, true>(tile, rows);
      column += kLanes;
    }
  }
}

// out += weights * values, each row over the tokens that it sees. Where rows see different tokens
// they are still taken together, with weights of 0, unless that would let a value that overflowed
// reach the tokens before it.
template <typename Operand>
void Values(const AttentionArgs& args, size_t begin, const Strip& strip, const Strip& next,
            Scratch<Operand>& scratch) {
  const ValueSegments all = CutValues(args, strip, strip.live, scratch);
  const size_t fewest = LiveTokens(args, strip, begin, 0);
  if (fewest == strip.live || AreFinite<Operand>(args, all, fewest)) {
    return AddValues(args, all, next, 0, args.tokens * args.group, scratch);
  }
  for (size_t token = 0; token < args.tokens; ++token) {
    const size_t live = LiveTokens(args, strip, begin, token);
    const ValueSegments cut = CutValues(args, strip, live, scratch);
    AddValues(args, cut, next, token * args.group, args.group, scratch);
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
