#include "engine/base/progress.h"

#include <gtest/gtest.h>

#include <thread>

namespace pinion {
namespace {

TEST(Progress, IsSeenInTheFileOnceItCountsThere) {
  const auto counts = progress::MakeCounts();
  ASSERT_TRUE(counts);
  const uint64_t none = progress::ReadCounts(*counts);
  progress::Advance();
  EXPECT_EQ(progress::ReadCounts(*counts), none);
  ASSERT_TRUE(progress::CountIn(counts->fd()));
  EXPECT_EQ(progress::ReadCounts(*counts), none);
  progress::Advance();
  EXPECT_NE(progress::ReadCounts(*counts), none);
}

// More threads than counts.
TEST(Progress, IsSeenOfEveryThread) {
  const auto counts = progress::MakeCounts();
  ASSERT_TRUE(counts && progress::CountIn(counts->fd()));
  for (int i = 0; i < 150; ++i) {
    const uint64_t before = progress::ReadCounts(*counts);
    std::thread(progress::Advance).join();
    ASSERT_NE(progress::ReadCounts(*counts), before) << i;
  }
}

TEST(Progress, RefusesFilesThatCannotHoldCounts) {
  EXPECT_FALSE(progress::CountIn(-1));
  const auto empty = MemoryFile::Make("empty");
  ASSERT_TRUE(empty);
  EXPECT_FALSE(progress::CountIn(empty->fd()));
}

}  // namespace
}  // namespace pinion
