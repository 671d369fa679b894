#pragma once

// The operations of tiles.inl.h in plain C++.

#include "kernels/impl/tiles.inl.h"
#include "tests/kernels/testing.h"

namespace pinion::kernels::testing {
namespace {

// Eight tiles in plain C++, which also holds the rules that the hardware enforces by faulting: no
// operation before a configuration, shapes that fit each other.
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

  static void Configure(const impl::TileShape& shape) {
    Now() = {true, shape, {}};
    for (int t = 0; t < 8; ++t) {
      EXPECT_TRUE(shape.rows[t] >= 1 && shape.rows[t] <= 16 && shape.row_bytes[t] == 64) << t;
    }
  }
  static void Release() { Now().configured = false; }
  template <int t>
  static void Zero() {
    EXPECT_TRUE(Now().configured);
    std::memset(Now().tile[t], 0, sizeof(Now().tile[t]));
  }
  template <int t>
  static void Load(const std::byte* from, size_t stride) {
    EXPECT_TRUE(Now().configured);
    for (size_t row = 0; row < Rows(t); ++row) {
      std::memcpy(Now().tile[t][row], from + row * stride, 64);
    }
  }
  template <int t>
  static void Store(std::byte* to, size_t stride) {
    EXPECT_TRUE(Now().configured);
    for (size_t row = 0; row < Rows(t); ++row) {
      std::memcpy(to + row * stride, Now().tile[t][row], 64);
    }
  }

  // sum[m][n] += the product of `Pack::kCount` neighbours at a[m][k] and b[k][n], for all k.
  template <typename Pack, int sum, int a, int b>
  static void DotOf() {
    EXPECT_EQ(Rows(sum), Rows(a));
    EXPECT_EQ(Rows(b), 16u);  // as many as a row of `a` has packs
    State& state = Now();
    for (size_t m = 0; m < Rows(a); ++m) {
      for (size_t n = 0; n < 16; ++n) {
        typename Pack::Sum total;
        std::memcpy(&total, &state.tile[sum][m][n * 4], 4);
        for (size_t k = 0; k < 16; ++k) {
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
