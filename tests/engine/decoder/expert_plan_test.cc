#include "engine/decoder/expert_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace pinion {
namespace {

// rows x top_k distinct experts; the low ones more often than the high ones.
std::vector<int32_t> Draw(size_t rows, size_t top_k, size_t experts) {
  std::mt19937 rng(20261121);
  std::vector<int32_t> chosen;
  for (size_t row = 0; row < rows; ++row) {
    std::vector<int32_t> order(experts);
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = 0; i < top_k; ++i) {
      const size_t j = i + std::min(rng() % (experts - i), rng() % (experts - i));
      std::swap(order[i], order[j]);
    }
    chosen.insert(chosen.end(), order.begin(), order.begin() + static_cast<ptrdiff_t>(top_k));
  }
  return chosen;
}

struct Case {
  size_t rows, top_k, experts;
};
const Case kCases[] = {{1, 1, 1}, {1, 8, 128}, {64, 8, 128}, {512, 8, 128}, {33, 2, 4}};

TEST(ExpertPlan, GroupsEveryChoiceOnceByExpertAndToken) {
  for (const auto& [rows, top_k, experts] : kCases) {
    const auto chosen = Draw(rows, top_k, experts);
    ExpertPlan plan;
    plan.Build(chosen.data(), rows, top_k, experts);
    ASSERT_EQ(plan.assignments(), rows * top_k);
    EXPECT_EQ(plan.first(0), 0u);
    EXPECT_EQ(plan.first(experts), rows * top_k);
    std::vector<int> seen(rows * top_k);
    for (size_t row = 0; row < rows; ++row) {
      for (size_t i = 0; i < top_k; ++i) {
        const size_t place = plan.place(row, i);
        const auto expert = static_cast<size_t>(chosen[row * top_k + i]);
        ++seen[place];
        EXPECT_EQ(plan.row(place), row);
        EXPECT_EQ(plan.choice(place), row * top_k + i);
        EXPECT_GE(place, plan.first(expert));
        EXPECT_LT(place, plan.first(expert + 1));
        if (place > plan.first(expert)) {
          EXPECT_LT(plan.row(place - 1), row);
        }
      }
    }
    EXPECT_THAT(seen, ::testing::Each(1));
    size_t touched = 0;
    for (size_t e = 0; e < experts; ++e) touched += plan.tokens(e) > 0;
    EXPECT_EQ(plan.experts_touched(), touched);
  }
}

TEST(ExpertPlan, ItemsCoverEveryColumnOfEveryTouchedExpertOnce) {
  for (const auto& [rows, top_k, experts] : kCases) {
    const auto chosen = Draw(rows, top_k, experts);
    ExpertPlan plan;
    plan.Build(chosen.data(), rows, top_k, experts);
    for (size_t units : {1, 12, 45}) {
      for (size_t threads : {1, 2, 64}) {
        std::vector<ExpertItem> items;
        plan.Cut(units, threads, items);
        std::vector<std::vector<int>> covered(experts, std::vector<int>(units));
        for (const ExpertItem& item : items)
          for (size_t unit = item.unit; unit < item.unit + item.units; ++unit)
            ++covered.at(item.expert).at(unit);
        for (size_t e = 0; e < experts; ++e)
          EXPECT_THAT(covered[e], ::testing::Each(plan.tokens(e) > 0 ? 1 : 0));
      }
    }
  }
}

// Threads that take items one by one: the time of the last one over the time of an even share.
double Imbalance(const ExpertPlan& plan, const std::vector<ExpertItem>& items, size_t threads) {
  std::vector<double> busy(threads);
  for (const ExpertItem& item : items) {
    const size_t tokens = std::max<size_t>(8, plan.tokens(item.expert));
    *std::min_element(busy.begin(), busy.end()) += static_cast<double>(item.units * tokens);
  }
  const double total = std::accumulate(busy.begin(), busy.end(), 0.0);
  return *std::max_element(busy.begin(), busy.end()) * static_cast<double>(threads) / total;
}

// Qwen3-30B-A3B: 128 experts of 12 pairs of gate and up blocks, 8 a token.
TEST(ExpertPlan, KeepsEveryCoreBusy) {
  const auto imbalance = [](size_t rows, size_t threads) {
    ExpertPlan plan;
    plan.Build(Draw(rows, 8, 128).data(), rows, 8, 128);
    std::vector<ExpertItem> items;
    plan.Cut(12, threads, items);
    return Imbalance(plan, items, threads);
  };
  EXPECT_LT(imbalance(64, 2), 1.03);
  EXPECT_LT(imbalance(64, 16), 1.03);
  EXPECT_LT(imbalance(64, 64), 1.06);
  EXPECT_LT(imbalance(512, 64), 1.06);
  EXPECT_LT(imbalance(1, 16), 1.01);  // 96 pieces of work in all
  EXPECT_LT(imbalance(1, 32), 1.01);
}

TEST(ExpertPlan, IsBuiltAnewForEveryLayer) {
  ExpertPlan plan;
  plan.Build(Draw(64, 8, 128).data(), 64, 8, 128);
  const int32_t one[] = {3, 1};
  plan.Build(one, 1, 2, 4);
  EXPECT_EQ(plan.assignments(), 2u);
  EXPECT_EQ(plan.experts_touched(), 2u);
  EXPECT_EQ(plan.place(0, 0), 1u);
  EXPECT_EQ(plan.place(0, 1), 0u);
  EXPECT_EQ(plan.tokens(0), 0u);
}

}  // namespace
}  // namespace pinion
