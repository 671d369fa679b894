#pragma once

// Products on matrix tiles (AMX): registers of up to 16 rows of 64 bytes, and an instruction that
// adds the product of two of them to a third. Passes deal with bytes only, so bfloat16 and int8
// share them: a step is 64 bytes of every row of x (32 bfloat16, 64 int8) and, in the packed
// layouts (kernels.h), 16 rows of 64 columns x 4 bytes of w; sums are 4 bytes each.
//
// Tiles: the operations, all static, tiles named by number:
//   Configure(TileShape), Release()
//   Zero<t>(), Load<t>(from, stride), Store<t>(to, stride)     stride in bytes from row to row
//   Dot<sum, a, b>()                                           sum += a b
// isa_amx.cc has the real ones; tests have an emulation and run this same code on any CPU.

#include <cstddef>
#include <cstdint>

namespace pinion::kernels::impl {
namespace {

constexpr size_t kTileHeight = 16, kTileBytes = 64;  // of one full tile
constexpr size_t kTileSize = kTileHeight * kTileBytes;
constexpr size_t kTileBlockBytes = 4 * kTileSize;   // of w: one step of 64 columns
constexpr size_t kTileRowPitch = 4 * kTileBytes;    // of w, from row to row of a step
constexpr size_t kTileGroupRows = 2 * kTileHeight;  // of a pass of 2 x 2 tiles

// The memory operand of LDTILECFG.
struct alignas(64) TileShape {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileShape) == 64, "LDTILECFG reads 64 bytes");

// The addresses of steps: `stride` bytes apart, or listed in `at`.
struct TileSteps {
  const std::byte* first = nullptr;
  size_t stride = 0;
  const std::byte* const* at = nullptr;
  const std::byte* operator[](size_t step) const {
    return at != nullptr ? at[step] : first + step * stride;
  }
};

// Rows of activations: `pitch` bytes from row to row of a tile, `tile` from one tile of 16 rows to
// the next, `step` from step to step.
struct TileRows {
  const std::byte* first = nullptr;
  size_t pitch = 0, tile = 0, step = kTileBytes;
};
// Rows as they lie in memory.
inline TileRows RowsAt(const std::byte* first, size_t stride) {
  return {first, stride, kTileHeight * stride, kTileBytes};
}

// One pass of kHeight x kWidth tiles of sums over some steps of one block.
struct TilePass {
  TileRows x;
  std::byte* y;
  size_t y_stride;
  TileSteps w;
  size_t w_pitch;  // bytes from row to row of a step
  size_t steps;
  bool accumulate;
  TileSteps prefetch;  // `lines` lines a step, in the order of addresses
  size_t lines;
  size_t w_tile = kTileBytes;  // from one tile of w to the next in a step
  // Whether each step prefetches the tiles of the next into L1. While the core's other hardware
  // thread holds tiles (AddStep), loads do not overlap, and products took 0.7 of the time with it
  // (bfloat16, K = 2048, two threads of Emerald Rapids); otherwise as long as without.
  bool prefetches_next = false;
};

// The side work of a pass that has none (RunPass calls it after each product).
struct Idle {
  void operator()() {}
};

// The roles of the tiles. 1 x 4, 1 x 2 and 2 x 2 all have at most 4 sums. One tile is enough for w,
// because the CPU renames tiles.
template <int kHeight, int kWidth>
struct TileNames {
  static_assert(kHeight * kWidth <= 4 && kHeight <= 2);
  static constexpr int Sum(int row, int column) { return row * kWidth + column; }
  static constexpr int X(int row) { return 4 + row; }
  static constexpr int W() { return 4 + kHeight; }

  // rows: the rows of x in the last row of tiles. Tiles of fewer rows neither read nor write beyond
  // them.
  static TileShape Shape(size_t rows) {
    TileShape shape;
    const auto last = static_cast<uint8_t>(rows);
    for (int column = 0; column < kWidth; ++column) shape.rows[Sum(kHeight - 1, column)] = last;
    shape.rows[X(kHeight - 1)] = last;
    return shape;
  }
};

// Calls body.template operator()<0>(), <1>(), ... <count - 1>().
template <int count, int first = 0, typename Body>
void ForEach(Body body) {
  if constexpr (first < count) {
    body.template operator()<first>();
    ForEach<count, first + 1>(body);
  }
}

inline void PrefetchTile(const std::byte* tile, size_t pitch) {
  for (size_t row = 0; row < kTileHeight; ++row) __builtin_prefetch(tile + row * pitch, 0, 3);
}

// Adds the products of one step: x is kHeight tiles, w kWidth tiles. A tile of x
// or w is zeroed after its last use, which frees the register behind its name until the next load.
// Hardware threads of one core share these registers: if another one holds tiles, eight names that
// all hold something leave nothing to rename, and every product waits for the one before. Measured
// on an Emerald Rapids core beside such a thread, operands in L1: 16 ns a product, 26 ns without
// zeroing; alone, 6.4 ns both ways.
template <typename Tiles, int kHeight, int kWidth, typename SideWork>
void AddStep(const TilePass& pass, const std::byte* x, const std::byte* w, SideWork& side_work) {
  using Names = TileNames<kHeight, kWidth>;
  ForEach<kWidth>([&]<int column>() {
    const std::byte* own = w + column * pass.w_tile;
    Tiles::template Load<Names::W()>(own, pass.w_pitch);
    if (pass.prefetches_next) PrefetchTile(own + pass.w.stride, pass.w_pitch);
    ForEach<kHeight>([&]<int i>() {
      constexpr int row = column % 2 == 0 ? i : kHeight - 1 - i;  // from the one just used
      if constexpr (column == 0) {
        Tiles::template Load<Names::X(row)>(x + row * pass.x.tile, pass.x.pitch);
        if (pass.prefetches_next) PrefetchTile(x + row * pass.x.tile + pass.x.step, pass.x.pitch);
      }
      Tiles::template Dot<Names::Sum(row, column), Names::X(row), Names::W()>();
      if constexpr (column + 1 == kWidth) Tiles::template Zero<Names::X(row)>();
      side_work();
    });
    Tiles::template Zero<Names::W()>();
  });
}

template <typename Tiles, int kHeight, int kWidth, typename SideWork>
void RunPass(const TilePass& pass, SideWork& side_work) {
  const auto y = [&pass](int row, int column) {
    return pass.y + static_cast<size_t>(row) * kTileHeight * pass.y_stride +
           static_cast<size_t>(column) * kTileBytes;
  };
  ForEach<kHeight * kWidth>([&]<int i>() {
    if (pass.accumulate) {
      Tiles::template Load<i>(y(i / kWidth, i % kWidth), pass.y_stride);
    } else {
      Tiles::template Zero<i>();
    }
  });
  const std::byte* x = pass.x.first;
  for (size_t step = 0; step < pass.steps; ++step) {
    const std::byte *w = pass.w[step], *prefetch = pass.prefetch[step];
    for (size_t line = 0; line < pass.lines; ++line) {
      __builtin_prefetch(prefetch + line * kTileBytes, 0, 2);
    }
    AddStep<Tiles, kHeight, kWidth>(pass, x, w, side_work);
    x += pass.x.step;
  }
  ForEach<kHeight * kWidth>(
      [&]<int i>() { Tiles::template Store<i>(y(i / kWidth, i % kWidth), pass.y_stride); });
}

// The calling thread's tiles, configured as passes need them. They are released at the end, because
// a thread that holds them has 8 KiB more to save at every context switch. Configuring takes some
// 200 clocks, so one object should serve as many passes as possible.
template <typename Tiles>
class TileUnit {
 public:
  TileUnit() = default;
  ~TileUnit() { Tiles::Release(); }
  TileUnit(const TileUnit&) = delete;
  TileUnit& operator=(const TileUnit&) = delete;

  // 1 to 32 rows by 32 columns. Calls side_work() after each product.
  template <typename SideWork>
  void RunHalf(const TilePass& pass, size_t rows, SideWork& side_work) {
    Shape(rows);
    rows > kTileHeight ? RunPass<Tiles, 2, 2>(pass, side_work)
                       : RunPass<Tiles, 1, 2>(pass, side_work);
  }
  void RunHalf(const TilePass& pass, size_t rows) {
    Idle idle;
    RunHalf(pass, rows, idle);
  }

  // 1 to 16 rows by the 64 columns of a block, likewise. Loads activations once for all columns.
  template <typename SideWork>
  void RunWide(const TilePass& pass, size_t rows, SideWork& side_work) {
    Shape(rows);
    RunPass<Tiles, 1, 4>(pass, side_work);
  }

  // 1 to 32 rows by the 64 columns of a block, likewise; more than 16 use each loaded tile twice.
  // Prefetches pass.lines consecutive lines per step.
  template <typename SideWork>
  void RunBlock(TilePass pass, size_t rows, SideWork& side_work) {
    if (rows <= kTileHeight) {
      pass.prefetch.stride = pass.lines * kTileBytes;
      return RunWide(pass, rows, side_work);
    }
    pass.lines = (pass.lines + 1) / 2;
    pass.prefetch.stride = pass.lines * kTileBytes;
    RunHalf(pass, rows, side_work);
    pass.w.first += 2 * pass.w_tile;
    pass.y += 2 * kTileBytes;
    pass.prefetch.first += pass.steps * pass.prefetch.stride;
    RunHalf(pass, rows, side_work);
  }
  void RunBlock(const TilePass& pass, size_t rows) {
    Idle idle;
    RunBlock(pass, rows, idle);
  }

 private:
  void Shape(size_t rows) {
    if (rows == shaped_) return;
    // A configuration for four sums side by side also serves passes of two.
    Tiles::Configure(rows > kTileHeight ? TileNames<2, 2>::Shape(rows - kTileHeight)
                                        : TileNames<1, 4>::Shape(rows));
    shaped_ = rows;
  }

  size_t shaped_ = 0;  // the number of rows configured
};

}  // namespace
}  // namespace pinion::kernels::impl
