#include "engine/comm/traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "tests/engine/comm/thread_world.h"

namespace pinion {
namespace {

using testing::ThreadWorld;

TEST(CountingCommunicator, CountsCallsAndBytesInAndOut) {
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

// Between steps, a server has memory of the cache touched, which it broadcasts as well.
TEST(CountingCommunicator, AStepHasADelayOfItsOwnForItsOrder) {
  ThreadWorld(2).Run([](Communicator& threads) {
    CountingCommunicator world(threads);
    std::array<char, 8> order{};
    world.Broadcast(order.data(), 4);
    const Traffic before = world.traffic();
    world.Broadcast(order.data(), 4);
    world.Broadcast(order.data(), 8);
    const Traffic step = world.traffic() - before;
    EXPECT_EQ(step.calls, 2u);
    EXPECT_EQ(step.delays, 1u) << "both messages of the order are under way together";
  });
}

TEST(CountingCommunicator, CountsBytesBetweenParts) {
  ThreadWorld(3).Run([](Communicator& threads) {
    CountingCommunicator world(threads);
    const auto part = world.Part(world.process() == 0 ? 0 : 1);
    std::array<char, 8> mine{};
    std::array<char, 16> all{};
    if (world.process() > 0) part->Gather(mine.data(), 8, all.data());
    EXPECT_EQ(world.traffic().bytes, world.process() > 0 ? 8u : 0u) << "of one other in the part";
    EXPECT_EQ(world.traffic().calls, world.process() > 0 ? 1u : 0u);
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

TEST(LinkCost, IsTheDelaysPlusTheBytes) {
  const LinkCost link{.call_s = 0.5, .bytes_per_s = 100};
  EXPECT_DOUBLE_EQ(link.SecondsFor({.calls = 9, .delays = 4, .bytes = 300, .seconds = 99}), 2 + 3);
  EXPECT_DOUBLE_EQ(LinkCost{.call_s = 0.5}.SecondsFor({.calls = 9, .delays = 4, .bytes = 300}), 2)
      << "bytes that take no time that could be measured";
}

// Two processes, and a link between them whose clock is a number: a message arrives delay_s after
// it was sent and bytes / bytes_per_s later. `clock` is this process's, which computing moves.
class DelayedCommunicator final : public Communicator {
 public:
  DelayedCommunicator(Communicator& world, double delay_s, double bytes_per_s)
      : world_(world), delay_s_(delay_s), bytes_per_s_(bytes_per_s) {}
  size_t process() const override { return world_.process(); }
  size_t processes() const override { return world_.processes(); }
  void Gather(const void* mine, size_t bytes, void* all) override {
    world_.Gather(mine, bytes, all);
    Arrive(1 - process(), bytes, true);
  }
  void GatherAtLeader(const void* mine, const std::vector<size_t>& bytes, void* all) override {
    world_.GatherAtLeader(mine, bytes, all);
    Arrive(1, bytes[1], process() == 0);
  }
  void Broadcast(void* data, size_t bytes) override {
    world_.Broadcast(data, bytes);
    Arrive(0, bytes, process() == 1);
  }
  void Send(size_t, int, const void*, size_t) override { FAIL(); }
  void Receive(size_t, int, void*, size_t) override { FAIL(); }
  std::unique_ptr<Communicator> Part(int part) override { return world_.Part(part); }

  double clock = 0;

 private:
  // The message that the other process has just sent; `waits`: this one needs it.
  void Arrive(size_t sender, size_t bytes, bool waits) {
    double clocks[2];
    world_.Gather(&clock, sizeof clock, clocks);
    const double at = clocks[sender] + delay_s_ + static_cast<double>(bytes) / bytes_per_s_;
    if (waits) clock = std::max(clock, at);
  }

  Communicator& world_;
  const double delay_s_, bytes_per_s_;
};

// A step of a model with so many layers: the order, two terms of each layer, the logits. Computes
// for compute_s before each call but the order.
void RunStep(Communicator& world, DelayedCommunicator& link, size_t layers, double compute_s) {
  std::array<char, 1000> mine{}, order{};
  std::array<char, 2000> all{};
  world.Broadcast(order.data(), 16);
  world.Broadcast(order.data(), 200);
  for (size_t term = 0; term < 2 * layers; ++term) {
    link.clock += compute_s;
    world.Gather(mine.data(), 500, all.data());
  }
  link.clock += compute_s;
  world.GatherAtLeader(mine.data(), {0, 1000}, all.data());
}

// The order and its payload are under way together, and a term goes both ways at once: the leader
// waits for the follower that the order reached late, then the follower for the leader, in turns.
TEST(LinkCost, PredictsTheTimeOfAStepsMessagesOneAfterTheOther) {
  for (const size_t layers : {1, 2, 16})
    ThreadWorld(2).Run([&](Communicator& threads) {
      constexpr double kDelay = 0.02, kBytesPerS = 50'000, kCompute = 0.003;
      constexpr size_t kSteps = 3;
      DelayedCommunicator link(threads, kDelay, kBytesPerS);
      CountingCommunicator world(link);
      for (size_t step = 0; step < kSteps; ++step) RunStep(world, link, layers, kCompute);
      if (world.process() != 0) return;
      const Traffic traffic = world.traffic();
      EXPECT_EQ(traffic.calls, kSteps * (2 + 2 * layers + 1));
      EXPECT_EQ(traffic.delays, kSteps * (1 + 2 * layers + 1));
      const LinkCost cost{.call_s = kDelay, .bytes_per_s = kBytesPerS};
      const double computed = kSteps * static_cast<double>(2 * layers + 1) * kCompute;
      const double predicted = computed + cost.SecondsFor(traffic);
      // The head of an order is on its way while the payload is: 16 bytes a step are counted twice.
      EXPECT_NEAR(link.clock, predicted, kSteps * (16 / kBytesPerS + 1e-9));
    });
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
