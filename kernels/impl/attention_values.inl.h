#pragma once

// The second product of attention: weights times values.

#include "kernels/impl/attention_widened.inl.h"

namespace pinion::kernels::impl {
namespace {

// All rows of kColumns vectors (or half a vector) of output columns. sparse: that of the next
// strip.
template <typename Operand, int kColumns, bool kHalf>
void ValueColumns(TileArgs<Operand> tile, size_t rows, bool sparse) {
  constexpr int kLines = (kColumns * kLanes * Operand::kBytes + 63) / 64;
  constexpr int kMost = kColumns > kWide ? kBroadRows : kColumns < kWide ? kNarrowRows : kTileRows;
  const typename Operand::X* x = tile.x;
  float* y = tile.y;
  const float* factors = tile.factors;
  if (!sparse) tile.prefetch_stride = kLines * 64;
  ForRowGroups<kMost>(rows, [&]<int kRows>(size_t row) {
    tile.x = x + row * tile.x_stride;
    tile.y = y + row * tile.y_stride;
    tile.factors = factors + row;
    if (row == 0 && sparse) {
      Tile<Operand, kRows, kColumns, 1, kHalf, kPrefetchLevel>(tile);
    } else if (row == 0) {
      Tile<Operand, kRows, kColumns, kLines, kHalf, kPrefetchLevel>(tile);
    } else {
      Tile<Operand, kRows, kColumns, 0, kHalf>(tile);
    }
  });
}

// The same for kWide vectors and many rows, widened as many tokens at a time as there is room for.
template <typename Operand>
[[gnu::noinline]] void WidenedColumns(const TileArgs<Operand>& tile, size_t rows) {
  alignas(64) float widened[kWidenedFloats];
  constexpr size_t kVectorBytes = kLanes * Operand::kBytes;
  constexpr int kLines = (kWide * kVectorBytes + 63) / 64;
  const auto* const columns = reinterpret_cast<const std::byte*>(widened);
  const typename Operand::X* x = tile.x;
  const auto multiply = [&](size_t tokens) {
    TileArgs<Widened<Operand>> of = {.x_stride = tile.x_stride,
                                     .w = &columns,
                                     .steps = &tokens,
                                     .segments = 1,
                                     .w_stride = kWidenedColumns * sizeof(float),
                                     .y_stride = tile.y_stride,
                                     .accumulate = true};
    ForFullTiles(rows, [&]<int kRows>(size_t row) {
      of.x = x + row * tile.x_stride;
      of.y = tile.y + row * tile.y_stride;
      Tile<Widened<Operand>, kRows, kWide>(of);
    });
    x += tokens;
  };
  float* to = widened;
  for (size_t segment = 0; segment < tile.segments; ++segment) {
    const std::byte *w = tile.w[segment], *ask = tile.prefetch[segment];
    for (size_t step = tile.steps[segment]; step > 0; --step, w += tile.w_stride) {
      const std::byte* vectors[kWide];
      for (int c = 0; c < kWide; ++c) vectors[c] = w + c * kVectorBytes;
      to = WidenStep<Operand>(vectors, to);
      PrefetchLines<kLines, kPrefetchLevel>(ask, Prefetch::kNear);
      ask += kLines * 64;
      if (to < widened + kWidenedFloats) continue;
      multiply(kWidenedFloats / kWidenedColumns);
      to = widened;
    }
  }
  if (to > widened) multiply(static_cast<size_t>(to - widened) / kWidenedColumns);
}

// kWide vectors of columns. Sums of scaled operands are not cut: that would change their roundings.
template <typename Operand>
void AddWideColumns(const TileArgs<Operand>& tile, size_t rows, bool sparse) {
  if constexpr (kWidens<Operand> && !kIsScaled<Operand>) {
    if (rows >= kWidenedRows) return WidenedColumns(tile, rows);
  }
  ValueColumns<Operand, kWide, false>(tile, rows, sparse);
}

// The values of consecutive tokens of a strip, as segments of a Tile.
struct ValueSegments {
  const std::byte* values[Strip::kMaxPieces + 2];
  size_t steps[Strip::kMaxPieces + 2];
  size_t count = 0;
  void Add(const std::byte* first, size_t n) {
    values[count] = first;
    steps[count++] = n;
  }
};

// Copies one token of a step of values and writes zeros for the other.
template <typename Operand>
const std::byte* CutStep(const std::byte* step, size_t token, size_t value_dim, std::byte* to) {
  constexpr size_t kElement = Operand::kBytes / Operand::kStepK;
  __builtin_memset(to, 0, value_dim * Operand::kBytes);
  for (size_t d = 0; d < value_dim; ++d) {
    const size_t at = d * Operand::kBytes + token * kElement;
    __builtin_memcpy(to + at, step + at, kElement);
  }
  return to;
}

// The values of a strip's tokens `seen`, and no others. A weight of 0 is not enough to hide the
// other slots: they may hold an infinity that another request left, and 0 * infinity is NaN. If the
// range begins or ends within a step (a pair of tokens), that step is copied without the other
// token. Bytes need no copy: they are always finite, and an unseen token's weight is 0 whatever its
// scale.
template <typename Operand>
ValueSegments CutValues(const AttentionArgs& args, const Strip& strip, Seen seen,
                        Scratch<Operand>& scratch) {
  constexpr size_t kStepK = Operand::kStepK;
  const size_t step_bytes = args.value_dim * Operand::kBytes;
  const size_t first = seen.first / kStepK, end = (seen.end + kStepK - 1) / kStepK;
  ValueSegments cut;
  for (size_t i = 0, piece = 0; i < strip.pieces; piece += strip.value_steps[i++]) {
    size_t low = piece < first ? first : piece, high = piece + strip.value_steps[i];
    if (high > end) high = end;
    if (low >= high) continue;
    const std::byte* from = strip.values[i] + (low - piece) * step_bytes;
    if (!kIsScaled<Operand> && low * kStepK < seen.first) {
      cut.Add(CutStep<Operand>(from, 1, args.value_dim, scratch.cut_values[0]), 1);
      from += step_bytes;
      ++low;
    }
    const bool cut_last = !kIsScaled<Operand> && low < high && high * kStepK > seen.end;
    if (cut_last) --high;
    if (low < high) cut.Add(from, high - low);
    if (!cut_last) continue;
    from += (high - low) * step_bytes;
    cut.Add(CutStep<Operand>(from, 0, args.value_dim, scratch.cut_values[1]), 1);
  }
  return cut;
}

// Whether all values of the strip's tokens `seen` are finite: products with 0 are then 0, not NaN.
template <typename Operand>
bool AreFinite(const AttentionArgs& args, const Strip& strip, Seen seen,
               Scratch<Operand>& scratch) {
  if (kIsScaled<Operand> || seen.first >= seen.end) return true;
  const ValueSegments cut = CutValues(args, strip, seen, scratch);
  const typename Operand::X zeros[Operand::kStepK] = {};
  Vec sum = Set(0);
  for (size_t i = 0; i < cut.count; ++i) {
    for (size_t step = 0; step < cut.steps[i]; ++step) {
      const std::byte* w = cut.values[i] + step * args.value_dim * Operand::kBytes;
      for (size_t d = 0; d < args.value_dim; d += kLanes, w += kLanes * Operand::kBytes) {
        for (size_t sub = 0; sub < Operand::kSubs; ++sub) {
          const Vec values = args.value_dim - d < kLanes ? Operand::template Load<true>(w, sub)
                                                         : Operand::template Load<false>(w, sub);
          sum = Operand::MultiplyAdd(values, Operand::Spread(zeros, sub), sum);
        }
      }
    }
  }
  return SumLanes(sum) == 0;
}

// out += weights * values of the tokens `seen`, for some rows. The next strip's values are
// prefetched at the same pace.
template <typename Operand>
void AddValues(const AttentionArgs& args, const Strip& strip, Seen seen, const Strip& next,
               size_t first_row, size_t rows, Scratch<Operand>& scratch) {
  const ValueSegments cut = CutValues(args, strip, seen, scratch);
  const std::byte *w[Strip::kMaxPieces + 2], *prefetch[Strip::kMaxPieces + 2];
  const size_t first_token = seen.first / Operand::kStepK * Operand::kStepK;
  TileArgs<Operand> tile = {.x = scratch.weights[first_row] + first_token,
                            .x_stride = kStripTokens,
                            .w = w,
                            .steps = cut.steps,
                            .segments = cut.count,
                            .w_stride = args.value_dim * Operand::kBytes,
                            .y_stride = args.value_dim,
                            .accumulate = true,
                            .factors = scratch.weight_factors + first_row,
                            .prefetch = prefetch};
  const bool broad = TakesBroadTiles<Operand>(args.value_dim, rows);
  const bool tall = kHasTallTiles<Operand> && IsTall(rows);
  for (size_t column = 0; column < args.value_dim;) {
    for (size_t i = 0; i < cut.count; ++i) {
      w[i] = cut.values[i] + column * Operand::kBytes;
      // In the order of addresses, which the hardware's own prefetchers follow; if sparse, at the
      // columns being read.
      const size_t asked = next.sparse ? 1 : cut.steps[i];
      prefetch[i] = next.values[i < next.pieces ? i : 0] + column * Operand::kBytes * asked;
    }
    tile.y = args.out + first_row * args.value_dim + column;
    const size_t left = args.value_dim - column;
    if (broad) {
      if constexpr (kHasTallTiles<Operand>)
        ValueColumns<Operand, kBroadWidth, false>(tile, rows, next.sparse);
      column += kBroadWidth * kLanes;
    } else if (tall && left >= kTallWidth * kLanes) {
      if constexpr (kHasTallTiles<Operand>)
        ValueColumns<Operand, kTallWidth, false>(tile, rows, false);
      column += kTallWidth * kLanes;
    } else if (left >= kWide * kLanes) {
      AddWideColumns(tile, rows, next.sparse);
      column += kWide * kLanes;
    } else if (left >= kLanes) {
      ValueColumns<Operand, 1, false>(tile, rows, false);
      column += kLanes;
    } else {
      if constexpr (kLanes > 8) ValueColumns<Operand, 1, true>(tile, rows, false);
      column += kLanes;
    }
  }
}

// out += weights * values, each row over the tokens that it sees. Rows that see different tokens
// are still computed together, with weights of 0 for the unseen ones, unless a value there is not
// finite: that would reach rows that do not see it, so each query token is then computed alone.
template <typename Operand, typename Products>
void Values(const AttentionArgs& args, const Strip& strip, const Strip& next,
            Scratch<Operand>& scratch, Products& products) {
  Seen any = SeenBy(args, strip, 0), all = any;
  for (size_t token = 1; token < args.tokens; ++token) {
    const Seen seen = SeenBy(args, strip, token);
    if (seen.first < any.first) any.first = seen.first;
    if (seen.end > any.end) any.end = seen.end;
    if (seen.first > all.first) all.first = seen.first;
    if (seen.end < all.end) all.end = seen.end;
  }
  if (all.first >= all.end) all = {any.end, any.end};  // nothing is seen by all
  if (AreFinite(args, strip, {any.first, all.first}, scratch) &&
      AreFinite(args, strip, {all.end, any.end}, scratch)) {
    return products.AddValues(args, strip, any, next, 0, args.tokens * args.group, scratch);
  }
  for (size_t token = 0; token < args.tokens; ++token) {
    products.AddValues(args, strip, SeenBy(args, strip, token), next, token * args.group,
                       args.group, scratch);
  }
}

}  // namespace
}  // namespace pinion::kernels::impl
