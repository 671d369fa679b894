#pragma once

// The operations of tiles.inl.h in plain C++.

#include "kernels/impl/tiles.inl.h"
#include "tests/kernels/testing.h"

namespace pinion::kernels::testing {
namespace {

// Why hardware would fault (Intel SDM volume 2, LDTILECFG, TILELOADD, TDPBF16PS), in a sentence;
// null if it would not.
inline const char* FaultOfShape(const impl::TileShape& shape) {
  if (shape.palette != 1) return "no palette but 1 has tiles";
  for (uint8_t byte : shape.reserved)
    if (byte != 0) return "reserved bytes are not zero";
  for (int t = 0; t < 16; ++t) {
    if (t >= 8 && (shape.rows[t] != 0 || shape.row_bytes[t] != 0)) return "there are eight tiles";
    if (shape.rows[t] > 16 || shape.row_bytes[t] > 64) return "a tile is 16 rows of 64 bytes";
    if ((shape.rows[t] == 0) != (shape.row_bytes[t] == 0)) return "rows without bytes, or no rows";
  }
  return nullptr;
}
inline const char* FaultOfTile(const impl::TileShape& shape, int t) {
  if (t < 0 || t >= 8 || shape.rows[t] == 0) return "no such tile";
  if (shape.row_bytes[t] % 4 != 0) return "rows are not whole words";
  return nullptr;
}
inline const char* FaultOfDot(const impl::TileShape& shape, int sum, int a, int b) {
  for (int t : {sum, a, b})
    if (const char* fault = FaultOfTile(shape, t)) return fault;
  if (sum == a || sum == b || a == b) return "the three tiles are not different ones";
  if (shape.rows[sum] != shape.rows[a]) return "sums have other rows than a";
  if (shape.row_bytes[sum] != shape.row_bytes[b]) return "sums have other columns than b";
  if (shape.row_bytes[a] / 4 != shape.rows[b]) return "a row of a has not as many words as b rows";
  return nullptr;
}

// Eight tiles in plain C++, for which what faults on hardware is a failure of the test.
struct EmulatedTiles {
  struct State {
    bool configured = false;
    impl::TileShape shape;
    std::byte tile[8][16][64];
  };
  static State& Now() {
    thread_local State state;
    return state;
  }
  static size_t Rows(int t) { return Now().shape.rows[t]; }
  static size_t RowBytes(int t) { return Now().shape.row_bytes[t]; }
  static void ExpectNo(const char* fault) {
    EXPECT_TRUE(Now().configured) << "no shape is loaded";
    EXPECT_EQ(fault, nullptr) << fault;
  }

  static void Configure(const impl::TileShape& shape) {
    Now() = {true, shape, {}};
    ExpectNo(FaultOfShape(shape));
  }
  static void Release() { Now() = {}; }
  template <int t>
  static void Zero() {
    ExpectNo(FaultOfTile(Now().shape, t));
    std::memset(Now().tile[t], 0, sizeof(Now().tile[t]));
  }
  template <int t>
  static void Load(const std::byte* from, size_t stride) {
    ExpectNo(FaultOfTile(Now().shape, t));
    std::memset(Now().tile[t], 0, sizeof(Now().tile[t]));
    for (size_t row = 0; row < Rows(t); ++row) {
      std::memcpy(Now().tile[t][row], from + row * stride, RowBytes(t));
    }
  }
  template <int t>
  static void Store(std::byte* to, size_t stride) {
    ExpectNo(FaultOfTile(Now().shape, t));
    for (size_t row = 0; row < Rows(t); ++row) {
      std::memcpy(to + row * stride, Now().tile[t][row], RowBytes(t));
    }
  }

  // sum[m][n] += the product of `Pack::kCount` neighbours at a[m][k] and b[k][n], for all k.
  template <typename Pack, int sum, int a, int b>
  static void DotOf() {
    ExpectNo(FaultOfDot(Now().shape, sum, a, b));
    State& state = Now();
    for (size_t m = 0; m < Rows(a); ++m) {
      for (size_t n = 0; n < RowBytes(b) / 4; ++n) {
        typename Pack::Sum total;
        std::memcpy(&total, &state.tile[sum][m][n * 4], 4);
        for (size_t k = 0; k < Rows(b); ++k) {
          total += Pack::Product(&state.tile[a][m][k * 4], &state.tile[b][k][n * 4]);
        }
        std::memcpy(&state.tile[sum][m][n * 4], &total, 4);
      }
    }
  }
};

struct PairOfBf16 {
  using Sum = float;
  static float Product(const std::byte* a, const std::byte* b) {
    return Get(a, Dtype::kBf16, 0) * Get(b, Dtype::kBf16, 0) +
           Get(a, Dtype::kBf16, 1) * Get(b, Dtype::kBf16, 1);
  }
};
struct FourOfS8 {
  using Sum = int32_t;
  static int32_t Product(const std::byte* a, const std::byte* b) {
    int32_t sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<int8_t>(a[i]) * static_cast<int8_t>(b[i]);
    return sum;
  }
};
template <typename Pack>
struct Emulated : EmulatedTiles {
  template <int sum, int a, int b>
  static void Dot() {
    DotOf<Pack, sum, a, b>();
  }
};

}  // namespace
}  // namespace pinion::kernels::testing
