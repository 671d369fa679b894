#include "engine/run/order.h"

#include <gtest/gtest.h>

#include "tests/engine/comm/thread_world.h"

namespace pinion {
namespace {

TEST(Order, ABatchBringsItsBlockTables) {
  const std::vector<int32_t> first = {7, 3, 9, 1}, windowed = {-1, 8, 2}, second = {4};
  StepBatch batch;
  batch.tokens = {11, 12, 13, 14};
  batch.logit_rows = {2, 3};
  batch.types = {0, 1, 1, 0};
  batch.slices = {{0, 3, 30, {first.data(), windowed.data()}, 2},
                  {3, 1, 0, {second.data(), second.data()}, 5, 8, 9}};
  // Tokens 0 to 32 take three blocks of 16, so the fourth entry may not be read.
  const auto decoded = Decode(Encode(batch, 16));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->batch.tokens, batch.tokens);
  EXPECT_EQ(decoded->batch.logit_rows, batch.logit_rows);
  EXPECT_EQ(decoded->batch.types, batch.types);
  ASSERT_EQ(decoded->batch.slices.size(), 2u);
  EXPECT_EQ(decoded->block_tables[0], (std::vector<int32_t>{7, 3, 9}));
  EXPECT_EQ(decoded->block_tables[1], windowed);
  EXPECT_EQ(decoded->block_tables[2], second);
  for (size_t i = 0; i < 2; ++i) {
    const StepBatch::Slice &got = decoded->batch.slices[i], &want = batch.slices[i];
    EXPECT_EQ(got.first_row, want.first_row);
    EXPECT_EQ(got.rows, want.rows);
    EXPECT_EQ(got.first_position, want.first_position);
    EXPECT_EQ(got.place, want.place);
    EXPECT_EQ(got.begins_from, want.begins_from);
    EXPECT_EQ(got.keeps_in, want.keeps_in);
    EXPECT_EQ(got.block_tables[0], decoded->block_tables[2 * i].data());
    EXPECT_EQ(got.block_tables[1], decoded->block_tables[2 * i + 1].data());
    EXPECT_EQ(got.block_tables[2], nullptr);
  }
}

TEST(Order, ACutBatchIsNone) {
  StepBatch batch;
  batch.tokens = {1, 2};
  const std::string whole = Encode(batch, 16);
  EXPECT_TRUE(Decode(whole));
  EXPECT_FALSE(Decode(whole.substr(0, whole.size() - 1)));
  EXPECT_FALSE(Decode(""));
}

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
