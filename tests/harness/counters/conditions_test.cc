#include "harness/counters/conditions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <ctime>

#include "harness/counters/own_ticks.h"

namespace pinion::harness {
namespace {

TEST(Conditions, DetectsPinnedThreadsThatWereMoved) {
  EXPECT_EQ(MovedThreads({{1, 0}, {2, 1}}, {{1, 0}, {2, 1}, {3, 1}}, {1, 2, 3}), 0u);
  EXPECT_EQ(MovedThreads({{1, 0}, {2, 1}}, {{1, 5}}, {1, 2}), 2u);  // to another; to several
  EXPECT_EQ(MovedThreads({{1, 0}, {2, 1}}, {{1, 0}}, {1}), 0u);     // one has ended
}

TEST(Conditions, ReportsOnlyRealDisturbances) {
  Conditions before, after;
  after.now_ns = 10'000'000'000;
  after.cpu_ticks = 2000;
  EXPECT_TRUE(Disturbances(before, after, 2).empty());
  after.steal_ticks = 40;
  after.pressure_us = 5'000'000;
  after.busy_ticks = 1900;
  after.own_ticks = 1880;
  after.throttled_periods = 3;
  after.major_faults = 7;
  after.involuntary_switches = 2100;
  EXPECT_THAT(Disturbances(before, after, 2), testing::ElementsAre("steal 2.0 %"))
      << "pressure, throttling, switches and page faults of its own are its result";
  after.own_ticks = 1700;
  EXPECT_THAT(
      Disturbances(before, after, 2),
      testing::ElementsAre("steal 2.0 %", "7 major faults",
                           "CPU pressure 50 %, others took 10 % of the CPUs",
                           "throttled in 3 periods", "210 involuntary switches per second"));
  before.knows_own = false;
  EXPECT_THAT(Disturbances(before, after, 2), testing::ElementsAre("steal 2.0 %"))
      << "nobody knows whose they are";
  EXPECT_GT(Conditions::Of({getpid()}).cpu_ticks, 0u);
}

TEST(Conditions, FewSwitchesOfAShortLoadAreNotADisturbance) {
  Conditions before, after;
  after.now_ns = 100'000'000;
  after.cpu_ticks = after.busy_ticks = 100;  // of others
  after.involuntary_switches = 36;           // 360 a second
  EXPECT_TRUE(Disturbances(before, after, 2).empty());
  after.involuntary_switches = 210;
  EXPECT_THAT(Disturbances(before, after, 2),
              testing::ElementsAre("2100 involuntary switches per second"));
  after.now_ns = 10'000'000'000;
  EXPECT_TRUE(Disturbances(before, after, 2).empty());
}

TEST(Conditions, ChildrensTimeCountsAsOwn) {
  const Conditions before = Conditions::Of({getpid()});
  const pid_t child = fork();
  if (child == 0) {
    while (clock() < CLOCKS_PER_SEC / 5) {
    }
    pause();  // alive when it is counted
  }
  while (OwnTicks() < before.own_ticks + 10) usleep(10'000);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const Conditions after = Conditions::Of({getpid()});
  EXPECT_GE(after.own_ticks, before.own_ticks + 10) << "of one that was waited for, too";
  EXPECT_GE(after.busy_ticks, before.busy_ticks + 10);
}

TEST(Conditions, ReadThreadsOfAnotherProcess) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    cpu_set_t now, one;
    sched_getaffinity(0, sizeof now, &now);
    int cpu = 0;
    while (!CPU_ISSET(static_cast<size_t>(cpu), &now)) ++cpu;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(cpu), &one);
    sched_setaffinity(0, sizeof one, &one);
    (void)!write(ready[1], "", 1);
    pause();
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const Conditions conditions = Conditions::Of({child});
  EXPECT_THAT(conditions.threads, testing::ElementsAre(child));
  EXPECT_EQ(conditions.pinned.size(), 1u);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(Conditions::Of({child}).threads.empty()) << "it has ended";
}

}  // namespace
}  // namespace pinion::harness
