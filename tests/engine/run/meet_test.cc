#include "engine/run/meet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/engine/comm/thread_world.h"

namespace pinion {
namespace {

using ::testing::HasSubstr;

// A process on a host of four CPUs.
struct Process {
  std::optional<double> quota;  // of the host
  size_t locals = 1;
};

// What each of the processes is told; empty if they agree.
std::vector<std::string> Told(const std::vector<Process>& processes) {
  std::vector<std::string> told(processes.size());
  testing::ThreadWorld(processes.size()).Run([&](Communicator& world) {
    const Process& mine = processes[world.process()];
    Budget budget;
    budget.cpus = {0, 1, 2, 3};
    budget.cpu_quota = mine.quota;
    const Status status = AgreeOnQuota(world, budget, mine.locals);
    if (!status) told[world.process()] = status.error().message;
  });
  return told;
}

TEST(AgreeOnQuota, UnequalOnesAreRefusedWithBothValues) {
  for (const std::string& told : Told({{1.5}, {1.5}, {3}}))
    EXPECT_THAT(told, HasSubstr("the CPU quota of a process is 1.5 CPUs of time in process 0 and 3 "
                                "CPUs of time in process 2; every step would wait"));
  for (const std::string& told : Told({{2}, {}}))
    EXPECT_THAT(told, HasSubstr("2 CPUs of time in process 0 and without limit in process 1"));
}

TEST(AgreeOnQuota, WhatCountsIsTheTimeOfEachProcess) {
  const std::vector<std::string> agreed(3);
  EXPECT_EQ(Told({{}, {}, {}}), agreed);
  EXPECT_EQ(Told({{1.5}, {1.5}, {1.5}}), agreed);
  EXPECT_EQ(Told({{1}, {2, 2}, {2, 2}}), agreed) << "two of them share a host, and its quota";
  EXPECT_EQ(Told({{4}, {}, {8}}), agreed) << "four CPUs are all that there are";
}

TEST(AgreeOnQuota, AProcessWithoutABudgetTellsAll) {
  testing::ThreadWorld(2).Run([](Communicator& world) {
    Result<Budget> budget = Budget{};
    if (world.process() == 1) budget = Fail(ErrorCode::kUsage, "no CPU is left");
    const Status status = AgreeOnQuota(world, budget, 1);
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr("process 1: no CPU is left"));
  });
}

}  // namespace
}  // namespace pinion
