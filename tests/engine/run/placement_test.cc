#include "engine/run/placement.h"

#include <gtest/gtest.h>

namespace pinion {
namespace {

TEST(RemoteShare, CountsPagesOnUnplannedNodes) {
  EXPECT_EQ(RemoteShare({0}, {{0, 300}, {1, 100}}), 0.25);
  EXPECT_EQ(RemoteShare({1}, {{0, 300}, {1, 100}}), 0.75);
  EXPECT_EQ(RemoteShare({0, 1}, {{0, 300}, {1, 100}}), 0.0);
  EXPECT_EQ(RemoteShare({2}, {{0, 300}, {1, 100}}), 1.0);
}

TEST(RemoteShare, IsUnknownWithoutMemoryOrPlan) {
  EXPECT_EQ(RemoteShare({0}, {}), std::nullopt);
  EXPECT_EQ(RemoteShare({}, {{0, 300}}), std::nullopt);
}

}  // namespace
}  // namespace pinion
