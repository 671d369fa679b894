#include "engine/weights/format_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace pinion {
namespace {

// Of 4 bits.
IntegerFormat Grouped(size_t group) {
  IntegerFormat format;
  format.bits = 4;
  format.group = group;
  format.lowest = -8;
  return format;
}

// Act-order: as many columns in each group, anywhere.
IntegerFormat ActOrder(size_t columns, size_t group) {
  std::vector<uint32_t> group_of(columns);
  for (size_t i = 0; i < columns; ++i) group_of[i] = static_cast<uint32_t>(i / group);
  std::mt19937 rng(3);
  std::shuffle(group_of.begin(), group_of.end(), rng);
  IntegerFormat format = Grouped(group);
  format.group_of = std::make_shared<const std::vector<uint32_t>>(std::move(group_of));
  return format;
}

// Every column of the share once, each packed group from one group of the checkpoint.
void ExpectWhole(const IntegerFormat& format, const IntegerShare& share, size_t column, size_t k) {
  ASSERT_TRUE(share.order);
  ASSERT_EQ(share.order->size(), share.layout.k);
  std::vector<int> seen(k, 0);
  for (size_t i = 0; i < share.layout.k; ++i) {
    const uint32_t at = (*share.order)[i], first = (*share.order)[i - i % share.layout.group];
    ASSERT_NE(first, kernels::kNoColumn) << "a group's scale is that of its first column";
    if (at == kernels::kNoColumn) continue;
    ++seen.at(at);
    EXPECT_EQ(format.group_of->at(column + at), format.group_of->at(column + first));
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<ptrdiff_t>(k));
}

TEST(ShareOf, KeepsNeighboursInPlace) {
  const auto share = ShareOf(Grouped(128), 64, 256);
  ASSERT_TRUE(share);
  EXPECT_FALSE(share->order);
  EXPECT_EQ(share->layout.group, 64);  // the cut goes through a group
}

// MXFP4 has no whole rows: a share as narrow as a group, or narrower, still has the group's scale.
TEST(ShareOf, KeepsMxfp4InGroups) {
  IntegerFormat format = Grouped(32);
  format.lowest = -12;
  format.scale_type = kernels::ScaleType::kPower;
  const auto group_of = [&](size_t column, size_t k) {
    const auto share = ShareOf(format, column, k);
    return share && !share->layout.whole_rows() && share->layout.e2m1() ? share->layout.group : 0;
  };
  EXPECT_EQ(group_of(0, 96), 32);
  EXPECT_EQ(group_of(32, 32), 32);
  EXPECT_EQ(group_of(0, 16), 32);
  EXPECT_EQ(group_of(16, 16), 16);
}

// Cuts of NVFP4 lie at multiples of its groups of 16, or the share is dequantised.
TEST(ShareOf, CutsNvfp4BetweenItsGroups) {
  IntegerFormat format = Grouped(16);
  format.lowest = -12;
  format.scale_type = kernels::ScaleType::kE4m3;
  const auto share = ShareOf(format, 48, 16);
  ASSERT_TRUE(share);
  EXPECT_EQ(share->layout.group, 16u);
  EXPECT_EQ(share->layout.scale_type, kernels::ScaleType::kE4m3);
  EXPECT_FALSE(share->layout.whole_rows());
  EXPECT_FALSE(ShareOf(format, 40, 16));
}

// As many as suit the share's columns, whatever the matrix has.
TEST(ShareOf, LeavesRoomForOutliersIfTheFormatDoes) {
  IntegerFormat format = Grouped(128);
  EXPECT_EQ(ShareOf(format, 0, 4096)->layout.outliers, 0u);
  format.outliers_apart = true;
  EXPECT_EQ(ShareOf(format, 0, 4096)->layout.outliers, kernels::MostOutliers(4096));
  EXPECT_EQ(ShareOf(format, 4096, 256)->layout.outliers, kernels::MostOutliers(256));
  format = ActOrder(512, 128);
  format.outliers_apart = true;
  EXPECT_EQ(ShareOf(format, 0, 512)->layout.outliers, kernels::MostOutliers(512));
}

TEST(ShareOf, LaysWholeMatricesByGroupsWithoutPadding) {
  for (const size_t columns : {512, 480}) {  // 480: the last group is short
    const IntegerFormat format = ActOrder(columns, 128);
    const auto share = ShareOf(format, 0, columns);
    ASSERT_TRUE(share);
    EXPECT_EQ(share->layout.group, 128);
    EXPECT_EQ(share->layout.k, 512);
    ExpectWhole(format, *share, 0, columns);
  }
}

TEST(ShareOf, PadsTheGroupsThatACutLeavesUneven) {
  const IntegerFormat format = ActOrder(4096, 128);
  for (const size_t column : {0, 2048}) {
    const auto share = ShareOf(format, column, 2048);
    ASSERT_TRUE(share);
    EXPECT_EQ(share->layout.group, 32);
    ExpectWhole(format, *share, column, 2048);
    EXPECT_LT(share->layout.k, 2048 * 1.3);
  }
}

TEST(ShareOf, TakesGroupsOfAnySize) {
  IntegerFormat format = ActOrder(96, 32);
  format.group_of = std::make_shared<const std::vector<uint32_t>>(96, 2u);  // one group has it all
  const auto share = ShareOf(format, 0, 96);
  ASSERT_TRUE(share);
  ExpectWhole(format, *share, 0, 96);
}

}  // namespace
}  // namespace pinion
