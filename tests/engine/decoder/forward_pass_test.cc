#include "engine/decoder/forward_pass.h"

#include <gtest/gtest.h>

#include <vector>

namespace pinion {
namespace {

// In any chunks, every row meets every unit once.
TEST(ForParts, MeetsEveryRowWithEveryUnitOnce) {
  constexpr size_t kUnits = 5;
  for (size_t rows : {1, 32, 40, 300}) {
    const kernels::ProductParts parts(rows, 64);
    for (size_t chunk : {1, 2, 3, 7, 100}) {
      std::vector<int> met(rows * kUnits);
      const size_t items = parts.count * kUnits;
      for (size_t begin = 0; begin < items; begin += chunk) {
        ForParts(parts, kUnits, begin, std::min(begin + chunk, items),
                 [&](size_t row, size_t count, size_t first, size_t last) {
                   EXPECT_LT(first, last);
                   EXPECT_LE(count, 64u);
                   for (size_t r = row; r < row + count; ++r)
                     for (size_t unit = first; unit < last; ++unit) ++met[r * kUnits + unit];
                 });
      }
      EXPECT_EQ(met, std::vector<int>(rows * kUnits, 1)) << rows << " rows, chunk " << chunk;
    }
  }
}

TEST(ForParts, FinishesAPartBeforeTheNext) {
  const kernels::ProductParts parts(128, 64);
  std::vector<size_t> first_rows;
  ForParts(parts, 4, 2, 7, [&](size_t row, size_t, size_t, size_t) { first_rows.push_back(row); });
  EXPECT_EQ(first_rows, (std::vector<size_t>{0, 64}));
}

// An empty share has no units, and no items.
TEST(ForParts, TakesNoItems) {
  ForParts(kernels::ProductParts(8, 64), 0, 0, 0,
           [](size_t, size_t, size_t, size_t) { FAIL() << "there is nothing"; });
}

}  // namespace
}  // namespace pinion
