#include "harness/load/generator.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace pinion::harness {
namespace {

// A thousand clients are a thousand connections.
TEST(ServerLoad, RaisesTheLimitOfDescriptors) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 300;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  ServerLoadPlan plan;
  plan.url = *ParseServerUrl("http://127.0.0.1:1");
  const auto result = RunServerLoad(plan);
  EXPECT_TRUE(result) << result.error().message;
  rlimit after;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace pinion::harness
