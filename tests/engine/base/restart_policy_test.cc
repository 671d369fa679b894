#include "engine/base/restart_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace pinion {
namespace {

using testing::ElementsAre;

TEST(RestartPolicy, DoublesItsDelayUpToHalfAMinute) {
  RestartPolicy policy(100);
  std::vector<double> delays;
  for (int i = 0; i < 9; ++i) delays.push_back(*policy.Died(i));
  EXPECT_THAT(delays, ElementsAre(0.5, 1, 2, 4, 8, 16, 30, 30, 30));
}

TEST(RestartPolicy, GivesUpAfterTooManyEndsInItsWindow) {
  RestartPolicy policy(2, 100);
  EXPECT_TRUE(policy.Died(0));
  EXPECT_TRUE(policy.Died(10));
  EXPECT_FALSE(policy.Died(100));
  RestartPolicy spread(2, 100);
  for (const double now : {0, 60, 120, 180, 240}) EXPECT_TRUE(spread.Died(now)) << now;
  EXPECT_FALSE(RestartPolicy(0).Died(0));
}

TEST(RestartPolicy, AHealthyMinuteBringsTheFirstDelayBack) {
  RestartPolicy policy(100);
  policy.Died(0);
  policy.Ready(10);
  EXPECT_EQ(policy.Died(69), 1);
  policy.Ready(80);
  EXPECT_EQ(policy.Died(140), 0.5);
  EXPECT_EQ(policy.Died(300), 1);  // it has not been ready since
}

}  // namespace
}  // namespace pinion
