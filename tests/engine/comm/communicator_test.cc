#include "engine/comm/communicator.h"

#include <gtest/gtest.h>

#include <atomic>

#include "engine/base/strings.h"
#include "tests/engine/comm/communicator_cases.h"
#include "tests/engine/comm/thread_world.h"

namespace pinion {
namespace {

using testing::ThreadWorld;

TEST(Communicator, OfThreadsMeetsTheEnginesNeedsOfAnyTransport) {
  for (const size_t processes : {1, 2, 3, 5})
    ThreadWorld(processes).Run(testing::ExpectCommunicates);
}

TEST(Communicator, TextsKeepTheirOrderAndLengths) {
  ThreadWorld(3).Run([](Communicator& world) {
    const std::string mine(world.process() * 5, static_cast<char>('a' + world.process()));
    EXPECT_EQ(GatherTexts(world, mine), (std::vector<std::string>{"", "bbbbb", "cccccccccc"}));
    EXPECT_EQ(GatherTexts(world, ""), (std::vector<std::string>{"", "", ""}));
  });
}

TEST(Communicator, TheLeadersTextReachesAll) {
  ThreadWorld(3).Run([](Communicator& world) {
    EXPECT_EQ(BroadcastText(world, world.process() == 0 ? "the leader's" : "another's, longer"),
              "the leader's");
  });
}

TEST(Communicator, NumbersOfAllProcesses) {
  ThreadWorld(4).Run([](Communicator& world) {
    EXPECT_EQ(LeastOf(world, 10 - world.process()), 7u);
    EXPECT_EQ(SumOf(world, 10 - world.process()), 34u);
  });
}

TEST(Communicator, NobodyLeavesABarrierBeforeAllHaveCome) {
  std::atomic<size_t> come = 0;
  ThreadWorld(4).Run([&](Communicator& world) {
    for (size_t round = 1; round <= 20; ++round) {
      ++come;
      Barrier(world);
      EXPECT_GE(come, 4 * round);
    }
  });
}

TEST(Together, TheFirstErrorIsEverybodys) {
  ThreadWorld(3).Run([](Communicator& world) {
    EXPECT_TRUE(Together(&world, {}));
    const Status both =
        Together(&world, world.process() == 0
                             ? Status{}
                             : Fail(ErrorCode::kExhausted, StrCat("no room at ", world.process())));
    ASSERT_FALSE(both);
    EXPECT_EQ(both.error().code, ErrorCode::kExhausted);
    EXPECT_EQ(both.error().message, "process 1: no room at 1");
    const Status leader =
        Together(&world, world.process() == 0 ? Fail(ErrorCode::kUsage, "not so") : Status{});
    ASSERT_FALSE(leader);
    EXPECT_EQ(leader.error().code, ErrorCode::kUsage);
    EXPECT_EQ(leader.error().message, "not so");
  });
}

TEST(Together, AloneItIsTheProcesssOwn) {
  EXPECT_TRUE(Together(nullptr, {}));
  EXPECT_EQ(Together(nullptr, Fail(ErrorCode::kIo, "why")).error().message, "why");
}

}  // namespace
}  // namespace pinion
