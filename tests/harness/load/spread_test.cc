#include "harness/load/spread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pinion::harness {
namespace {

using testing::ElementsAre;

size_t Send(Spread& spread) {
  const size_t server = spread.Choose();
  spread.Began(server);
  return server;
}

TEST(Spread, RoundRobinIfAllAreEquallyBusy) {
  Spread spread(3);
  std::vector<size_t> one_at_a_time;
  for (int i = 0; i < 5; ++i) {
    one_at_a_time.push_back(Send(spread));
    spread.Ended(one_at_a_time.back());
  }
  EXPECT_THAT(one_at_a_time, ElementsAre(0, 1, 2, 0, 1));
}

TEST(Spread, PrefersTheServerWithTheFewestRequestsInFlight) {
  Spread spread(3);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(Send(spread), i % 3);
  spread.Ended(1);
  EXPECT_EQ(Send(spread), 1u);
  spread.Ended(2);
  spread.Ended(2);
  EXPECT_EQ(Send(spread), 2u);
  EXPECT_EQ(Send(spread), 2u);
}

// A later turn counts for its conversation's server, even if another one is free.
TEST(Spread, TurnsThatStayMakeTheirServerBusy) {
  Spread spread(2);
  EXPECT_EQ(Send(spread), 0u);
  spread.Ended(0);
  spread.Began(0);
  EXPECT_EQ(Send(spread), 1u);
  spread.Ended(1);
  EXPECT_EQ(Send(spread), 1u);
}

TEST(Spread, AlwaysChoosesASingleServer) {
  Spread spread(1);
  EXPECT_EQ(Send(spread), 0u);
  EXPECT_EQ(Send(spread), 0u);
}

}  // namespace
}  // namespace pinion::harness
