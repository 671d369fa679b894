#include "engine/model/attention_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>

#include "kernels/kernels.h"

namespace pinion {
namespace {

Shard TwoGroups() {
  Shard shard;
  shard.groups = {{0, 0, 7}, {1, 7, 3}};
  return shard;
}

StepBatch Batch(std::vector<std::pair<size_t, size_t>> position_and_rows) {
  StepBatch batch;
  for (const auto& [position, rows] : position_and_rows) {
    batch.slices.push_back({batch.tokens.size(), rows, position, nullptr});
    batch.tokens.resize(batch.tokens.size() + rows);
  }
  return batch;
}

// Every query token of every group sees its whole context, or that within its window, exactly once.
void ExpectComplete(const AttentionPlan& plan, const StepBatch& batch, const Shard& shard,
                    size_t block_tokens, size_t window = 0) {
  std::map<std::tuple<size_t, size_t, size_t>, std::vector<std::pair<size_t, size_t>>> seen;
  std::set<int32_t> parts;
  for (const AttentionItem& item : plan.items) {
    EXPECT_LE(item.tokens * shard.groups[item.group].q_heads, kernels::kAttentionRows);
    EXPECT_EQ(item.context_begin % block_tokens, 0u);
    EXPECT_LT(item.context_begin, item.context_end);
    if (item.part >= 0) {
      EXPECT_TRUE(parts.insert(item.part).second);
    }
    for (size_t t = 0; t < item.tokens; ++t)
      seen[{item.slice, item.group, item.token + t}].emplace_back(item.context_begin,
                                                                  item.context_end);
  }
  EXPECT_EQ(parts.size(), plan.parts);
  for (size_t s = 0; s < batch.slices.size(); ++s)
    for (size_t g = 0; g < shard.groups.size(); ++g)
      for (size_t t = 0; t < batch.slices[s].rows; ++t) {
        auto ranges = seen[{s, g, t}];
        std::sort(ranges.begin(), ranges.end());
        const size_t seen_end = batch.slices[s].first_position + t + 1;
        size_t next = ranges.front().first;
        EXPECT_LE(next, window > 0 && seen_end > window ? seen_end - window : 0);
        for (const auto& [begin, end] : ranges) {
          EXPECT_EQ(begin, next);
          next = end;
        }
        EXPECT_GE(next, seen_end);
      }
  size_t joined = 0;
  for (const AttentionJoin& join : plan.joins) joined += join.parts;
  EXPECT_EQ(joined, plan.parts);
}

TEST(AttentionPlan, CoversRandomBatchesExactlyOnce) {
  std::mt19937 rng(20261120);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::pair<size_t, size_t>> slices;
    for (size_t i = 0, n = 1 + rng() % 5; i < n; ++i)
      slices.emplace_back(rng() % 3000, rng() % 3 ? 1 : 1 + rng() % 200);
    const StepBatch batch = Batch(slices);
    const Shard shard = TwoGroups();
    const size_t block_tokens = rng() % 2 ? 16 : 32;
    AttentionPlan plan;
    const int window = rng() % 2 ? 0 : static_cast<int>(1 + rng() % 1500);
    plan.Build(batch, shard, 1 + rng() % 16, block_tokens, window);
    ExpectComplete(plan, batch, shard, block_tokens, static_cast<size_t>(window));
  }
}

TEST(AttentionPlan, CutsALongContextOfOneSequenceOverThreads) {
  AttentionPlan plan;
  plan.Build(Batch({{8191, 1}}), TwoGroups(), 8, 32);
  EXPECT_GE(plan.items.size(), 16u);
  EXPECT_EQ(plan.joins.size(), 2u);
}

TEST(AttentionPlan, LeavesContextsWholeWhereSequencesKeepThreadsBusy) {
  AttentionPlan plan;
  plan.Build(Batch(std::vector<std::pair<size_t, size_t>>(16, {1000, 1})), TwoGroups(), 2, 32);
  EXPECT_EQ(plan.items.size(), 32u);
  EXPECT_TRUE(plan.joins.empty());
  EXPECT_EQ(plan.parts, 0u);
}

TEST(AttentionPlan, SkipsBlocksWhollyBeforeTheWindow) {
  AttentionPlan plan;
  plan.Build(Batch({{1000, 1}, {5, 1}}), TwoGroups(), 1, 32, 100);
  ASSERT_EQ(plan.items.size(), 4u);
  for (const AttentionItem& item : plan.items) {  // position 1000 sees 901 to 1000
    EXPECT_EQ(item.context_begin, item.slice == 0 ? 896u : 0u);
    EXPECT_EQ(item.context_end, item.slice == 0 ? 1001u : 6u);
  }
}

TEST(AttentionPlan, LayersOfTheSameWindowShareAPlan) {
  AttentionPlans plans;
  plans.Build(Batch({{8191, 1}}), TwoGroups(), 8, 32, {0, 512, 512, 0});
  EXPECT_EQ(&plans.of_layer(0), &plans.of_layer(3));
  EXPECT_EQ(&plans.of_layer(1), &plans.of_layer(2));
  EXPECT_EQ(plans.of_layer(0).items[0].context_begin, 0u);
  EXPECT_GE(plans.of_layer(1).items[0].context_begin, 8191u - 512 - 32);
  EXPECT_EQ(plans.parts(), plans.of_layer(0).parts);
}

TEST(AttentionPlan, IsEmptyForARankWithoutHeads) {
  AttentionPlan plan;
  plan.Build(Batch({{10, 4}}), Shard{}, 4, 32);
  EXPECT_TRUE(plan.items.empty());
}

}  // namespace
}  // namespace pinion
