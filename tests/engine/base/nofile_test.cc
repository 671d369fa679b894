#include "engine/base/nofile.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace pinion {
namespace {

TEST(Nofile, RaisesTheLimitToTheHardOne) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 300;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const auto limits = RaiseNofile();
  ASSERT_TRUE(limits) << limits.error().message;
  EXPECT_EQ(limits->before, 300u);
  EXPECT_EQ(limits->now, before.rlim_max);
  rlimit after;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST(Nofile, LeavesDescriptorsForEverythingElse) {
  EXPECT_EQ(ConnectionsWithin(1 << 20, 4096), 4096u);
  EXPECT_EQ(ConnectionsWithin(1024, 4096), 896u);
  EXPECT_EQ(ConnectionsWithin(64, 4096), 32u);
  EXPECT_EQ(ConnectionsWithin(20, 4096), 1u);
}

}  // namespace
}  // namespace pinion
