#pragma once

// GEMM on matrix tiles (AMX): registers of up to 16 rows of 64 bytes, and an instruction that adds
// the product of two of them to a third. The frame knows bytes alone, so that bfloat16 and int8
// share it: a step is 64 bytes of every row of x (32 bfloat16, 64 int8) and, in the packed layouts
// (kernels.h), 16 rows of 64 columns x 4 bytes of w; sums are 4 bytes each.
//
// Tiles: the operations, all static, tiles named by number:
//   Configure(TileShape), Release()
//   Zero<t>(), Load<t>(from, stride), Store<t>(to, stride)     stride in bytes from row to row
//   Dot<sum, a, b>()                                           sum += a b
// isa_amx.cc has the real ones; tests bring an emulation and so run this very code anywhere.
//
// Two regimes. Up to 16 rows, one tile of x meets all 64 columns of a block and weights stream
// by at the memory's pace. Above, 2 x 2 tiles (32 rows x 32 columns) use each loaded tile twice;
// rows come in blocks of which the activations fit half of L2, weights stream past them and are
// asked for a block of columns ahead, spread evenly over the steps.

#include <cstddef>
#include <cstdint>

namespace pinion::kernels::impl {
namespace {

constexpr size_t kTileHeight = 16, kTileBytes = 64;               // of one full tile
constexpr size_t kTileBlockBytes = 4 * kTileHeight * kTileBytes;  // of w: one step of 64 columns
constexpr size_t kTileRowPitch = 4 * kTileBytes;                  // of w, from row to row of a step

// 2048 bfloat16 or 4096 int8 at once: 16 rows of them are 64 KiB, as much as L2's share below
// allows in at least 256 rows, where weights at 13 GB/s a core bring in work at the rate of 3
// TFLOP/s.
constexpr size_t kDepthSteps = 64;
constexpr size_t kBlockBytesOfX = 1 << 20;  // half of L2, where AMX has been so far
constexpr size_t kBlockRows = kBlockBytesOfX / (kDepthSteps * kTileBytes);
static_assert(kBlockRows == 256);
// Memory's latency at a core's pace, as kProbeAhead; in steps.
constexpr size_t kStreamAheadSteps = 8192 / kTileBlockBytes;

// What LDTILECFG reads.
struct alignas(64) TileShape {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileShape) == 64, "as LDTILECFG reads it");

struct TileGemmArgs {
  const std::byte* x;  // [rows][steps * 64 bytes], x_stride bytes from row to row
  size_t x_stride;
  const std::byte* w;  // `blocks` packed blocks of `steps` steps each
  std::byte* y;        // [rows][blocks * 64] sums of 4 bytes, y_stride bytes from row to row
  size_t y_stride;
  size_t rows, steps, blocks;
};

// Where the steps of something lie: `stride` bytes apart, or wherever `at` says.
struct TileSteps {
  const std::byte* first = nullptr;
  size_t stride = 0;
  const std::byte* const* at = nullptr;
  const std::byte* operator[](size_t step) const {
    return at != nullptr ? at[step] : first + step * stride;
  }
};

// One pass of kHeight x kWidth tiles of sums over some steps of one block.
struct TilePass {
  const std::byte* x;
  std::byte* y;
  size_t x_stride, y_stride;
  TileSteps w;
  size_t w_pitch;  // bytes from row to row of a step
  size_t steps;
  bool accumulate;
  TileSteps prefetch;  // `lines` lines a step, in the order of addresses
  size_t lines;
};

// Which tile is what. 1 x 4, 1 x 2 and 2 x 2 all take at most 4 sums.
template <int kHeight, int kWidth>
struct TileNames {
  static_assert(kHeight * kWidth <= 4 && kHeight <= 2);
  static constexpr int Sum(int row, int column) { return row * kWidth + column; }
  static constexpr int X(int row) { return 4 + row; }
  static constexpr int W(int column) { return 4 + kHeight + column % (4 - kHeight); }

  // rows: of the last row of tiles.
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

template <typename Tiles, int kHeight, int kWidth>
void RunPass(const TilePass& pass) {
  using Names = TileNames<kHeight, kWidth>;
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
  const std::byte* x = pass.x;
  for (size_t step = 0; step < pass.steps; ++step) {
    const std::byte *w = pass.w[step], *prefetch = pass.prefetch[step];
    for (size_t line = 0; line < pass.lines; ++line) {
      __builtin_prefetch(prefetch + line * kTileBytes, 0, 2);
    }
    ForEach<kHeight>([&]<int row>() {
      Tiles::template Load<Names::X(row)>(x + row * kTileHeight * pass.x_stride, pass.x_stride);
    });
    ForEach<kWidth>([&]<int column>() {
      Tiles::template Load<Names::W(column)>(w + column * kTileBytes, pass.w_pitch);
      ForEach<kHeight>([&]<int row>() {
        Tiles::template Dot<Names::Sum(row, column), Names::X(row), Names::W(column)>();
      });
    });
    x += kTileBytes;
  }
  ForEach<kHeight * kWidth>(
      [&]<int i>() { Tiles::template Store<i>(y(i / kWidth, i % kWidth), pass.y_stride); });
}

// Up to 16 rows: every step of w is read once, in order, all 64 columns of it.
template <typename Tiles>
void StreamTiles(const TileGemmArgs& args) {
  Tiles::Configure(TileNames<1, 4>::Shape(args.rows));
  for (size_t block = 0; block < args.blocks; ++block) {
    const std::byte* w = args.w + block * args.steps * kTileBlockBytes;
    RunPass<Tiles, 1, 4>({.x = args.x,
                          .y = args.y + block * 4 * kTileBytes,
                          .x_stride = args.x_stride,
                          .y_stride = args.y_stride,
                          .w = {w, kTileBlockBytes},
                          .w_pitch = kTileRowPitch,
                          .steps = args.steps,
                          .accumulate = false,
                          .prefetch = {w + kStreamAheadSteps * kTileBlockBytes, kTileBlockBytes},
                          .lines = kTileBlockBytes / kTileBytes});
  }
}

// 32 rows, or fewer at the end, over half of a block's columns: rows = 17 to 32, or 1 to 16.
template <typename Tiles>
void RunRows(const TilePass& pass, size_t rows, size_t& configured) {
  const bool two = rows > kTileHeight;
  if (rows != configured) {
    Tiles::Configure(two ? TileNames<2, 2>::Shape(rows - kTileHeight)
                         : TileNames<1, 2>::Shape(rows));
    configured = rows;
  }
  if (two) {
    RunPass<Tiles, 2, 2>(pass);
  } else {
    RunPass<Tiles, 1, 2>(pass);
  }
}

// All columns for the rows [row, row + rows), over the steps [step, step + steps).
template <typename Tiles>
void BlockOfRows(const TileGemmArgs& args, size_t row, size_t rows, size_t step, size_t steps,
                 size_t& configured) {
  constexpr size_t kRows = 2 * kTileHeight, kPanels = 2, kPanelLines = 2 * kTileHeight;
  const size_t groups = (rows + kRows - 1) / kRows;
  for (size_t panel = 0; panel < args.blocks * kPanels; ++panel) {
    const size_t column = panel % kPanels * 2 * kTileBytes;
    const std::byte* w = args.w + (panel / kPanels * args.steps + step) * kTileBlockBytes;
    // While all rows pass over both halves of this block, the next one is asked for.
    const std::byte* next = w + args.steps * kTileBlockBytes;
    const size_t lines = (kPanelLines + groups - 1) / groups;
    for (size_t group = 0; group < groups; ++group) {
      const size_t first = row + group * kRows, done = panel % kPanels * groups + group;
      const size_t live = rows - group * kRows < kRows ? rows - group * kRows : kRows;
      RunRows<Tiles>({.x = args.x + first * args.x_stride + step * kTileBytes,
                      .y = args.y + first * args.y_stride +
                           (panel / kPanels * 4 + panel % kPanels * 2) * kTileBytes,
                      .x_stride = args.x_stride,
                      .y_stride = args.y_stride,
                      .w = {w + column, kTileBlockBytes},
                      .w_pitch = kTileRowPitch,
                      .steps = steps,
                      .accumulate = step > 0,
                      .prefetch = {next + done * lines * steps * kTileBytes, lines * kTileBytes},
                      .lines = lines},
                     live, configured);
    }
  }
}

// Tiles are released at the end: a thread that keeps them drags 8 KiB through every context switch.
template <typename Tiles>
void TileGemm(const TileGemmArgs& args) {
  if (args.rows <= kTileHeight) {
    StreamTiles<Tiles>(args);
  } else {
    size_t configured = 0;
    for (size_t step = 0; step < args.steps; step += kDepthSteps) {
      const size_t steps = args.steps - step < kDepthSteps ? args.steps - step : kDepthSteps;
      for (size_t row = 0; row < args.rows; row += kBlockRows) {
        const size_t rows = args.rows - row < kBlockRows ? args.rows - row : kBlockRows;
        BlockOfRows<Tiles>(args, row, rows, step, steps, configured);
      }
    }
  }
  Tiles::Release();
}

}  // namespace
}  // namespace pinion::kernels::impl
