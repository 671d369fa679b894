#include "engine/serve/memory_budget.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace pinion {
namespace {

TEST(MemoryBudget, NeverExceedsItsLimit) {
  const auto budget = std::make_shared<MemoryBudget>(100);
  const auto first = MemoryShare::Take(budget, "a", 50);
  auto second = MemoryShare::Take(budget, "b", 30);
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(MemoryShare::Take(budget, "c", 21));
  EXPECT_TRUE(second->Grow(20));
  EXPECT_EQ(budget->used(), 100u);
  EXPECT_FALSE(MemoryShare::Take(budget, "c", 1));
}

TEST(MemoryBudget, GivesOneClientHalf) {
  const auto budget = std::make_shared<MemoryBudget>(100);
  auto one = MemoryShare::Take(budget, "a", 30), two = MemoryShare::Take(budget, "a", 10);
  ASSERT_TRUE(one && two);
  EXPECT_FALSE(two->Grow(11));
  EXPECT_FALSE(two->Grow(~size_t{0}));  // no sum that wraps
  EXPECT_EQ(two->bytes(), 10u);
  EXPECT_TRUE(MemoryShare::Take(budget, "b", 50));
  one->ShrinkTo(20);
  EXPECT_TRUE(two->Grow(20));
  EXPECT_EQ(budget->used(), 50u);
}

TEST(MemoryBudget, SaysWhyAShareDoesNotGrow) {
  using Shortage = MemoryShare::Shortage;
  const auto budget = std::make_shared<MemoryBudget>(100);
  const auto held = MemoryShare::Take(budget, "a", 30);
  const auto asks = MemoryShare::Take(budget, "a", 10);
  EXPECT_EQ(asks->WhyNot(41), Shortage::kNever);
  EXPECT_EQ(asks->WhyNot(40), Shortage::kClient);
  const auto others = MemoryShare::Take(budget, "b", 50), more = MemoryShare::Take(budget, "c", 5);
  EXPECT_EQ(asks->WhyNot(6), Shortage::kOthers);
}

TEST(MemoryBudget, GetsBackTheMemoryOfAShareThatEnds) {
  const auto budget = std::make_shared<MemoryBudget>(100);
  {
    auto share = MemoryShare::Take(budget, "a", 40);
    share->ShrinkTo(20);
    EXPECT_EQ(budget->used(), 20u);
    share->ShrinkTo(30);  // less is given back, never taken
    EXPECT_EQ(budget->used(), 20u);
    MemoryShare moved = std::move(*share);
    EXPECT_EQ(moved.bytes(), 20u);
    EXPECT_EQ(budget->used(), 20u);
    auto other = MemoryShare::Take(budget, "b", 30);
    moved = std::move(*other);
    EXPECT_EQ(budget->used(), 30u);
  }
  EXPECT_EQ(budget->used(), 0u);
}

TEST(MemoryBudget, CountsSharesOfManyThreads) {
  const auto budget = std::make_shared<MemoryBudget>(8);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, client = std::string(1, static_cast<char>('a' + i))] {
      for (int round = 0; round < 10'000; ++round) {
        const auto share = MemoryShare::Take(budget, client, 3);
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
