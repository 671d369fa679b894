#pragma once

// Attention's two products on matrix tiles (tiles.inl.h): 32 rows x 32 tokens of scores and 32 rows
// x 32 columns of the result at once. For bfloat16 only; if blocks are not a multiple of 32 tokens
// or heads not a multiple of 32 wide, tiles would not be full and the vector kernel is used.

#include "kernels/impl/attention_values.inl.h"
#include "kernels/impl/tiles.inl.h"

namespace pinion::kernels::impl {
namespace {

constexpr size_t kPanelTokens = 32;  // two tiles of scores wide, one step of values deep
constexpr size_t kPanelColumns = 32;
constexpr size_t kStripPanels = kStripTokens / kPanelTokens;

bool FillsTiles(const AttentionArgs& args) {
  return args.dtype == KvDtype::kBf16 && args.block_tokens % kPanelTokens == 0 &&
         args.key_dim % kPanelColumns == 0 && args.value_dim % kPanelColumns == 0;
}

// Like VectorProducts, for arguments that fill tiles. Tiles: the operations, with the product of
// pairs of bfloat16. One object per call of attention, because configuring tiles takes time.
template <typename Operand, typename Tiles>
class TileProducts {
 public:
  static constexpr size_t kStep = kPanelTokens;
  static bool InOrder(const AttentionArgs&, size_t) { return false; }

  void Scores(const AttentionArgs& args, const Strip& strip, const Strip& next, size_t rows,
              Scratch<Operand>& scratch) {
    const size_t pitch = args.block_tokens * Operand::kBytes, steps = args.key_dim / kPairColumns;
    for (size_t row = 0; row < rows; row += kTileGroupRows) {
      for (size_t token = 0; token < strip.tokens; token += kPanelTokens) {
        const size_t chunk = steps * kPrefetchBytes;
        const bool ask = row == 0 && token < next.tokens;
        Run({.x = RowsAt(reinterpret_cast<const std::byte*>(scratch.q[row]), sizeof(scratch.q[0])),
             .y = reinterpret_cast<std::byte*>(&scratch.scores[row][token]),
             .y_stride = sizeof(scratch.scores[0]),
             .w = {strip.keys[token / kLanes], kTileHeight * pitch},
             .w_pitch = pitch,
             .steps = steps,
             .accumulate = false,
             .prefetch = {ask ? PanelOfKeys(args, next, token, chunk) : nullptr, kPrefetchBytes},
             .lines = ask ? kPrefetchBytes / 64 : 0},
            rows - row);
      }
    }
  }

  void AddValues(const AttentionArgs& args, const Strip& strip, Seen seen, const Strip& next,
                 size_t first_row, size_t rows, Scratch<Operand>& scratch) {
    if (seen.first >= seen.end) return;
    Panels panels = PanelsOf(args, strip);
    const Panels ahead = PanelsOf(args, next);
    const size_t first = seen.first / kPanelTokens;
    const size_t steps = (seen.end - 1) / kPanelTokens + 1 - first;
    CutPanel(args, panels, first, seen, 0);
    CutPanel(args, panels, first + steps - 1, seen, 1);
    // Each pass prefetches its share of every panel of the next strip.
    const size_t lines = kPanelTokens * kPanelColumns * sizeof(Bf16) / 64;
    const bool ask = first_row == 0 && ahead.count >= first + steps;
    for (size_t column = 0; column < args.value_dim; column += kPanelColumns) {
      const std::byte *w[kStripPanels], *prefetch[kStripPanels];
      for (size_t i = 0; i < steps; ++i) {
        w[i] = panels.at[first + i] + column * Operand::kBytes;
        prefetch[i] = ask ? ahead.at[first + i] + column * kPanelTokens * sizeof(Bf16) : nullptr;
      }
      for (size_t row = 0; row < rows; row += kTileGroupRows) {
        float* y = args.out + (first_row + row) * args.value_dim + column;
        const auto* x = &scratch.weights[first_row + row][first * kPanelTokens];
        Run({.x = RowsAt(reinterpret_cast<const std::byte*>(x), sizeof(scratch.weights[0])),
             .y = reinterpret_cast<std::byte*>(y),
             .y_stride = args.value_dim * sizeof(float),
             .w = {.at = w},
             .w_pitch = args.value_dim * Operand::kBytes,
             .steps = steps,
             .accumulate = true,
             .prefetch = {.at = prefetch},
             .lines = ask && row == 0 ? lines : 0},
            rows - row);
      }
    }
  }

 private:
  static constexpr size_t kPairColumns = 2 * kTileHeight;  // of keys, in one step
  static constexpr size_t kPrefetchBytes = kPairColumns * kPanelTokens * sizeof(Bf16);

  // The addresses of the values of each kPanelTokens tokens of a strip.
  struct Panels {
    const std::byte* at[kStripPanels];
    size_t count = 0;
  };

  static Panels PanelsOf(const AttentionArgs& args, const Strip& strip) {
    const size_t steps = kPanelTokens / Operand::kStepK;
    Panels panels;
    for (size_t i = 0; i < strip.pieces; ++i) {
      for (size_t step = 0; step < strip.value_steps[i]; step += steps) {
        panels.at[panels.count++] = strip.values[i] + step * args.value_dim * Operand::kBytes;
      }
    }
    return panels;
  }

  // The part of the strip's keys to prefetch during one panel's scores: `bytes` consecutive bytes.
  static const std::byte* PanelOfKeys(const AttentionArgs& args, const Strip& strip, size_t token,
                                      size_t bytes) {
    const size_t slot = (strip.begin + token) % args.block_tokens;
    return strip.keys[token / kLanes] - slot * Operand::kBytes + slot / kPanelTokens * bytes;
  }

  // If some tokens of a panel are not `seen`, replaces it with a copy that has zeros for them (see
  // CutValues).
  void CutPanel(const AttentionArgs& args, Panels& panels, size_t panel, Seen seen, int copy) {
    constexpr size_t kStepK = Operand::kStepK;
    const size_t begin = panel * kPanelTokens, bytes = args.value_dim * Operand::kBytes;
    if (panels.at[panel] == cut_[0] || (begin >= seen.first && begin + kPanelTokens <= seen.end)) {
      return;
    }
    std::byte* to = cut_[copy];
    const std::byte* from = panels.at[panel];
    for (size_t token = begin; token < begin + kPanelTokens; token += kStepK) {
      const bool even = token >= seen.first && token < seen.end;
      const bool odd = token + 1 >= seen.first && token + 1 < seen.end;
      if (even && odd) {
        __builtin_memcpy(to, from, bytes);
      } else if (even || odd) {
        CutStep<Operand>(from, even ? 0 : 1, args.value_dim, to);
      } else {
        __builtin_memset(to, 0, bytes);
      }
      from += bytes;
      to += bytes;
    }
    panels.at[panel] = cut_[copy];
  }

  void Run(const TilePass& pass, size_t rows) {
    tiles_.RunHalf(pass, rows < kTileGroupRows ? rows : kTileGroupRows);
  }

  TileUnit<Tiles> tiles_;
  alignas(64) std::byte cut_[2][kPanelTokens * kMaxValueDim * sizeof(Bf16)];
};

}  // namespace
}  // namespace pinion::kernels::impl
