#include "engine/serve/memory_budget.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace pinion {
namespace {

TEST(MemoryBudget, NeverExceedsItsLimit) {
  const auto budget = std::make_shared<MemoryBudget>(100);
  auto share = MemoryShare::Take(budget, 60);
  ASSERT_TRUE(share);
  EXPECT_FALSE(MemoryShare::Take(budget, 41));
  EXPECT_FALSE(share->Grow(41));
  EXPECT_FALSE(share->Grow(~size_t{0}));  // no sum that wraps
  EXPECT_EQ(share->bytes(), 60u);
  EXPECT_TRUE(share->Grow(40));
  EXPECT_EQ(budget->used(), 100u);
}

TEST(MemoryBudget, GetsBackWhatASharesEndFrees) {
  const auto budget = std::make_shared<MemoryBudget>(100);
  {
    auto share = MemoryShare::Take(budget, 60);
    share->ShrinkTo(20);
    EXPECT_EQ(budget->used(), 20u);
    share->ShrinkTo(50);  // less is given back, never taken
    EXPECT_EQ(budget->used(), 20u);
    MemoryShare moved = std::move(*share);
    EXPECT_EQ(moved.bytes(), 20u);
    EXPECT_EQ(budget->used(), 20u);
    auto other = MemoryShare::Take(budget, 30);
    moved = std::move(*other);
    EXPECT_EQ(budget->used(), 30u);
  }
  EXPECT_EQ(budget->used(), 0u);
}

TEST(MemoryBudget, CountsSharesOfManyThreads) {
  const auto budget = std::make_shared<MemoryBudget>(8);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 10'000; ++round) {
        const auto share = MemoryShare::Take(budget, 3);
        EXPECT_LE(budget->used(), 8u);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(budget->used(), 0u);
}

TEST(MemoryBudget, AShareWithoutABudgetGrowsFreely) {
  MemoryShare share;
  EXPECT_TRUE(share.Grow(size_t{1} << 40));
}

}  // namespace
}  // namespace pinion
