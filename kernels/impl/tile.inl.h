#pragma once

// The inner loop that GEMM and attention share: a register tile of kRows x kColumns vectors, y += x
// w, over a streamed operand w that is read once.
//
// The loops over rows and columns have constant bounds and must be unrolled (#pragma GCC unroll):
// only then can the compiler keep the arrays of sums and weights in registers. ISAs choose kRows
// and kColumns so that they fit (vec_*.inl.h).

#include "kernels/impl/operand.inl.h"
#include "kernels/kernels.h"

namespace pinion::kernels::impl {
namespace {

template <typename Operand>
struct TileArgs {
  const typename Operand::X* x = nullptr;  // [rows][all steps of all segments * kStepK]
  size_t x_stride = 0;                     // elements
  const std::byte* const* w = nullptr;     // one pointer per segment
  const size_t* steps = nullptr;           // of each segment
  size_t segments = 0;
  size_t w_stride = 0;                         // bytes from step to step
  float* y = nullptr;                          // [rows][columns]
  size_t y_stride = 0;                         // elements
  bool accumulate = false;                     // add to y instead of overwriting it
  const float* factors = nullptr;              // [rows]: of x, if kIsScaled; then y +=
  const std::byte* const* prefetch = nullptr;  // per segment: lines to prefetch while w is read
  size_t prefetch_stride = 0;                  // bytes from step to step; 0: w_stride
  Prefetch prefetch_to = Prefetch::kNear;
};

template <typename Operand>
using TileFn = void (*)(const TileArgs<Operand>&);

// How much earlier kBoth asks for lines in L2. On an Emerald Rapids core without AVX512_BF16 a row
// of bfloat16 read 85 to 92 % of the memory's bandwidth with kNear and 96 to 100 % with kBoth, and
// so it did for any distance from 4 to 64 KiB (pinion-bench
// --benchmark_filter='gemm/avx512(-both)?/bfloat16/0.5b.*/1/').
constexpr size_t kEarlierBytes = 16 * 1024;

// Always inlined: GCC takes a function that only prefetches for one without effects, and drops
// calls.
template <int kLines, int kLocality>
[[gnu::always_inline]] inline void PrefetchLines(const std::byte* from, Prefetch to) {
  if (to != Prefetch::kFar) {
#pragma GCC unroll 8
    for (int line = 0; line < kLines; ++line) __builtin_prefetch(from + line * 64, 0, kLocality);
  }
  if (to == Prefetch::kNear) return;
  if (to == Prefetch::kBoth) from += kEarlierBytes;
#pragma GCC unroll 8
  for (int line = 0; line < kLines; ++line) __builtin_prefetch(from + line * 64, 0, 2);
}

// sums += x w for one digit of x. Each step prefetches kPrefetch lines, into the cache level of
// kLocality (__builtin_prefetch's argument); the second digit's pass prefetches the lines behind
// those of the first.
template <typename Operand, int kRows, int kColumns, int kPrefetch, bool kHalf, int kLocality>
[[gnu::always_inline]] inline void AddProducts(const TileArgs<Operand>& args, size_t digit,
                                               Vec (&sums)[kRows][kColumns]) {
  const size_t prefetch_stride = args.prefetch_stride > 0 ? args.prefetch_stride : args.w_stride;
  const typename Operand::X* x = args.x;
  for (size_t segment = 0; segment < args.segments; ++segment) {
    const std::byte* w = args.w[segment];
    const std::byte* prefetch = kPrefetch > 0 ? args.prefetch[segment] : nullptr;
    for (size_t step = args.steps[segment]; step > 0; --step) {
      PrefetchLines<kPrefetch, kLocality>(prefetch + digit * kPrefetch * 64, args.prefetch_to);
#pragma GCC unroll 2
      for (size_t sub = 0; sub < Operand::kSubs; ++sub) {
        Vec weights[kColumns];
#pragma GCC unroll 16
        for (int c = 0; c < kColumns; ++c) {
          weights[c] = Operand::template Load<kHalf>(w + c * kLanes * Operand::kBytes, sub);
        }
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          const Vec spread = Operand::Spread(x + r * args.x_stride, digit + sub);
#pragma GCC unroll 16
          for (int c = 0; c < kColumns; ++c) {
            sums[r][c] = Operand::MultiplyAdd(weights[c], spread, sums[r][c]);
          }
        }
      }
      x += Operand::kStepK;
      w += args.w_stride;
      if constexpr (kPrefetch > 0) prefetch += prefetch_stride;
    }
  }
}

// kPrefetch: lines to prefetch in each step, divided among the digits, because all of them during
// the first pass would overflow the queue of misses. kLocality: as for AddProducts. kHalf: the
// (single) column vector is half a vector.
template <typename Operand, int kRows, int kColumns, int kPrefetch = 0, bool kHalf = false,
          int kLocality = 3>
void Tile(const TileArgs<Operand>& args) {
  Vec sums[kRows][kColumns];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) {
      const float* y = args.y + r * args.y_stride + c * kLanes;
      if (kIsScaled<Operand> || !args.accumulate) {
        sums[r][c] = Set(0);
      } else if constexpr (kHalf) {
        sums[r][c] = LoadHalf(y);
      } else {
        sums[r][c] = Load(y);
      }
    }
  }

  constexpr int kLater = kDigitsOf<Operand> == 2 ? kPrefetch / 2 : 0;
  AddProducts<Operand, kRows, kColumns, kPrefetch - kLater, kHalf, kLocality>(args, 0, sums);
  if constexpr (kDigitsOf<Operand> == 2) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int c = 0; c < kColumns; ++c) sums[r][c] = Operand::Raise(sums[r][c]);
    }
    AddProducts<Operand, kRows, kColumns, kLater, kHalf, kLocality>(args, 1, sums);
  }

#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) {
      float* y = args.y + r * args.y_stride + c * kLanes;
      Vec sum = sums[r][c];
      if constexpr (kIsScaled<Operand>) {
        const Vec old = LoadWords<kHalf>(reinterpret_cast<const std::byte*>(y));
        sum = Fma(Operand::Floats(sum), Set(args.factors[r]), old);
      }
      if constexpr (kHalf) {
        StoreHalf(y, sum);
      } else {
        Store(y, sum);
      }
    }
  }
}

// Cuts `rows` into the fewest groups of at most `most` rows, as even as possible: 8 are 4 + 4, not
// 6 + 2, because a tile of 2 rows would wait for its own sums.
struct RowGroups {
  size_t rows, count;
  constexpr RowGroups(size_t rows, size_t most) : rows(rows), count((rows + most - 1) / most) {}
  constexpr size_t Begin(size_t group) const {
    const size_t extra = rows % count;
    return group * (rows / count) + (group < extra ? group : extra);
  }
  constexpr size_t Size(size_t group) const { return Begin(group + 1) - Begin(group); }
};

}  // namespace
}  // namespace pinion::kernels::impl
