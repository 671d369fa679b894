#include "engine/serve/heartbeat.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace pinion {
namespace {

using Do = Heartbeat::Do;

// One that runs, and began to do so at 0.
class HeartbeatTest : public testing::Test {
 protected:
  HeartbeatTest() {
    heart_.Started(0);
    heart_.Ready();
  }
  Heartbeat heart_{4, 20};
};

TEST_F(HeartbeatTest, KillsAfterSilence) {
  EXPECT_EQ(heart_.period(), 1);
  heart_.Heard(10);
  for (const double now : {10, 11, 12, 13}) EXPECT_EQ(heart_.Tick(now, 0), Do::kPing) << now;
  EXPECT_EQ(heart_.Tick(14, 0), Do::kKill);
}

TEST_F(HeartbeatTest, AnyMessageIsASignOfLife) {
  for (double now = 0; now < 100; ++now) {
    if (static_cast<int>(now) % 3 == 0) heart_.Heard(now);
    EXPECT_EQ(heart_.Tick(now, 0), Do::kPing) << now;
  }
}

TEST_F(HeartbeatTest, AStepMayTakeAsLongAsItGetsOn) {
  double now = 0;
  for (; now < 100; ++now) EXPECT_EQ(heart_.Tick(now, static_cast<uint64_t>(now / 3)), Do::kPing);
  for (; now < 103; ++now) EXPECT_EQ(heart_.Tick(now, 33), Do::kPing) << now;
  EXPECT_EQ(heart_.Tick(now, 33), Do::kKill);
}

TEST_F(HeartbeatTest, ForgivesItsOwnSleep) {
  EXPECT_EQ(heart_.Tick(0, 0), Do::kPing);
  EXPECT_EQ(heart_.Tick(100, 0), Do::kPing);
  for (const double now : {101, 102, 103}) EXPECT_EQ(heart_.Tick(now, 0), Do::kPing) << now;
  EXPECT_EQ(heart_.Tick(104, 0), Do::kKill);
}

TEST(Heartbeat, LoadingMayTakeAsLongAsItGetsOn) {
  Heartbeat heart(4, 20);
  heart.Started(0);
  double now = 0;
  for (; now < 190; ++now)
    EXPECT_EQ(heart.Tick(now, static_cast<uint64_t>(now / 19)), Do::kNothing) << now;
  for (; now < 191; ++now) EXPECT_EQ(heart.Tick(now, 9), Do::kNothing) << now;
  EXPECT_EQ(heart.Tick(now, 9), Do::kKill);
}

TEST(Heartbeat, BeginsAnewWithEachProcess) {
  Heartbeat heart(4, 20);
  EXPECT_EQ(heart.Tick(0, 0), Do::kNothing);  // there is none
  EXPECT_EQ(heart.Tick(1000, 0), Do::kNothing);
  heart.Started(1000);
  EXPECT_EQ(heart.Tick(1001, 0), Do::kNothing);
  heart.Ready();
  EXPECT_EQ(heart.Tick(1002, 0), Do::kPing);
  heart.Reset();
  EXPECT_EQ(heart.Tick(2000, 0), Do::kNothing);
  heart.Started(2000);
  EXPECT_TRUE(heart.loading());
  EXPECT_EQ(heart.Tick(2019, 0), Do::kNothing);
}

}  // namespace
}  // namespace pinion
