#include "engine/exec/order.h"

#include <gtest/gtest.h>

#include "tests/engine/comm/thread_world.h"

namespace pinion {
namespace {

TEST(Order, FollowersGetWhatTheLeaderSends) {
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

}  // namespace
}  // namespace pinion
