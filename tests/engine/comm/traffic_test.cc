#include "engine/comm/traffic.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/engine/comm/thread_world.h"

namespace pinion {
namespace {

using testing::ThreadWorld;

TEST(CountingCommunicator, CountsCallsAndWhatCameInOrWentOut) {
  ThreadWorld(3).Run([](Communicator& threads) {
    CountingCommunicator world(threads);
    const bool leads = world.process() == 0;
    std::array<char, 8> mine{};
    std::array<char, 24> all{};
    world.Gather(mine.data(), 8, all.data());
    EXPECT_EQ(world.traffic().bytes, 16u) << "of the two others";
    world.GatherAtLeader(mine.data(), {0, 3, 5}, all.data());
    const uint64_t own[] = {8, 3, 5};
    EXPECT_EQ(world.traffic().bytes, 16 + own[world.process()]) << "the leader gets the others'";
    world.Broadcast(mine.data(), 4);
    EXPECT_EQ(world.traffic().bytes, 16 + own[world.process()] + (leads ? 8 : 4));
    EXPECT_EQ(world.traffic().calls, 3u);
    EXPECT_GT(world.traffic().seconds, 0);
  });
}

TEST(CountingCommunicator, PassesEveryCallOn) {
  ThreadWorld(2).Run([](Communicator& threads) {
    CountingCommunicator world(threads);
    EXPECT_EQ(world.processes(), 2u);
    EXPECT_EQ(GatherTexts(world, world.process() == 0 ? "one" : "three"),
              (std::vector<std::string>{"one", "three"}));
    EXPECT_EQ(BroadcastText(world, world.process() == 0 ? "told" : ""), "told");
  });
}

TEST(LinkCost, IsTheCallsPlusTheBytes) {
  const LinkCost link{.call_s = 0.5, .bytes_per_s = 100};
  EXPECT_DOUBLE_EQ(link.SecondsFor({.calls = 4, .bytes = 300, .seconds = 99}), 2 + 3);
  EXPECT_DOUBLE_EQ(LinkCost{.call_s = 0.5}.SecondsFor({.calls = 4, .bytes = 300}), 2)
      << "bytes that take no time that could be measured";
}

TEST(MeasureLink, MakesTheSameCallsInAllProcesses) {
  ThreadWorld(2).Run([](Communicator& threads) {
    CountingCommunicator world(threads);
    EXPECT_GT(MeasureLink(world).call_s, 0);
    const uint64_t calls = world.traffic().calls;
    EXPECT_EQ(LeastOf(world, calls), calls);
  });
}

}  // namespace
}  // namespace pinion
