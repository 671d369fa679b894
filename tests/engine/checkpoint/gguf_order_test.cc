#include "engine/checkpoint/gguf_order.h"

#include <gtest/gtest.h>

#include <vector>

namespace pinion {
namespace {

std::vector<size_t> StoredRows(const GgufOrder& order, size_t rows) {
  std::vector<size_t> stored;
  for (size_t row = 0; row < rows; ++row) stored.push_back(order.Stored(row));
  return stored;
}
using Rows = std::vector<size_t>;

TEST(GgufOrder, RowsKeepTheirPlacesByDefault) {
  EXPECT_TRUE(GgufOrder().as_stored());
  EXPECT_EQ(StoredRows({}, 3), (Rows{0, 1, 2}));
}

TEST(GgufOrder, HalvesOfEachHeadAreNeighboursInTheFile) {
  EXPECT_EQ(StoredRows({0, 2, 3}, 12), (Rows{0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11}));
}

TEST(GgufOrder, UnitsOfRowsStayTogetherBehindTheFirstOnes) {
  // Two lines of three units of two rows.
  EXPECT_EQ(StoredRows({1, 2, 3, 2}, 13), (Rows{0, 1, 2, 5, 6, 9, 10, 3, 4, 7, 8, 11, 12}));
}

TEST(GgufOrder, RunsOfRowsAreAmongThoseOfOthers) {
  GgufOrder order;
  order.offset = 2, order.run = 2, order.stride = 4;
  EXPECT_FALSE(order.as_stored());
  EXPECT_EQ(StoredRows(order, 4), (Rows{2, 3, 6, 7}));
}

}  // namespace
}  // namespace pinion
