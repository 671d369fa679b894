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

// Every query token of every group sees its whole context exactly once.
void ExpectComplete(const AttentionPlan& plan, const StepBatch& batch, const Shard& shard,
                    size_t block_tokens) {
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
        size_t next = 0;
        for (const auto& [begin, end] : ranges) {
          EXPECT_EQ(begin, next);
          next = end;
        }
        EXPECT_GE(next, batch.slices[s].first_position + t + 1);
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
    plan.Build(batch, shard, 1 + rng() % 16, block_tokens);
    ExpectComplete(plan, batch, shard, block_tokens);
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

TEST(AttentionPlan, IsEmptyForARankWithoutHeads) {
  AttentionPlan plan;
  plan.Build(Batch({{10, 4}}), Shard{}, 4, 32);
  EXPECT_TRUE(plan.items.empty());
}

}  // namespace
}  // namespace pinion
