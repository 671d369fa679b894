#include "engine/serve/restart_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace pinion {
namespace {

using testing::ElementsAre;
using Do = Heartbeat::Do;

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

TEST(Heartbeat, KillsAfterSilence) {
  Heartbeat heart(4);
  EXPECT_EQ(heart.period(), 1);
  heart.Heard(10);
  for (const double now : {10, 11, 12, 13}) EXPECT_EQ(heart.Tick(now), Do::kPing) << now;
  EXPECT_EQ(heart.Tick(14), Do::kKill);
}

TEST(Heartbeat, AnyMessageIsASignOfLife) {
  Heartbeat heart(4);
  for (double now = 0; now < 100; ++now) {
    if (static_cast<int>(now) % 3 == 0) heart.Heard(now);
    EXPECT_EQ(heart.Tick(now), Do::kPing) << now;
  }
}

TEST(Heartbeat, ForgivesItsOwnSleep) {
  Heartbeat heart(4);
  heart.Heard(0);
  EXPECT_EQ(heart.Tick(0), Do::kPing);
  EXPECT_EQ(heart.Tick(100), Do::kPing);
  for (const double now : {101, 102, 103}) EXPECT_EQ(heart.Tick(now), Do::kPing) << now;
  EXPECT_EQ(heart.Tick(104), Do::kKill);
}

TEST(Heartbeat, DoesNotKillALoadingEngine) {
  Heartbeat heart(4);
  EXPECT_EQ(heart.Tick(0), Do::kNothing);
  EXPECT_EQ(heart.Tick(1000), Do::kNothing);
  heart.Heard(1000);
  EXPECT_EQ(heart.Tick(1001), Do::kPing);
  heart.Reset();
  EXPECT_EQ(heart.Tick(2000), Do::kNothing);
}

}  // namespace
}  // namespace pinion
