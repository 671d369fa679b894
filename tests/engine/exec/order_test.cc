#include "engine/exec/order.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/engine/comm/thread_world.h"

namespace pinion {
namespace {

TEST(Order, FollowersGetTheLeadersOrders) {
  testing::ThreadWorld(3).Run([](Communicator& world) {
    for (const Order& sent : {Order{OrderKind::kStart, "options"}, Order{OrderKind::kStop}}) {
      if (world.process() == 0) {
        Send(world, sent);
        continue;
      }
      const Order order = AwaitOrder(world);
      EXPECT_EQ(order.kind, sent.kind);
      EXPECT_EQ(order.payload, sent.payload);
    }
  });
}

// A leader begins a step while the threads of another are in collective calls.
TEST(Order, GoesAsideOfCollectiveCalls) {
  testing::ThreadWorld(3).Run([](Communicator& world) {
    std::thread beside([&world] {
      for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(LeastOf(world, world.process() + i), i);
    });
    for (const Order& sent : {Order{OrderKind::kStep, "a step"}, Order{OrderKind::kStop}}) {
      if (world.process() == 0) {
        SendAside(world, sent);
        continue;
      }
      const Order order = AwaitOrderAside(world);
      EXPECT_EQ(order.kind, sent.kind);
      EXPECT_EQ(order.payload, sent.payload);
    }
    beside.join();
  });
}

}  // namespace
}  // namespace pinion
