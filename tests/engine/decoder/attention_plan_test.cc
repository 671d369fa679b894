#include "engine/decoder/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "engine/decoder/micro_batches.h"
#include "tests/engine/decoder/planned.h"

namespace pinion {
namespace {

using testing::Apart;
using testing::Blocks;
using testing::Decodes;
using testing::ExpectComplete;
using testing::ExpectOneChunkEach;
using testing::HeadsOf;
using testing::PlanOf;
using testing::RandomReach;
using testing::SharingTables;
using testing::TwoGroups;

TEST(AttentionPlan, CoversRandomBatchesExactlyOnce) {
  std::mt19937 rng(20261120);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::pair<size_t, size_t>> slices;
    for (size_t i = 0, n = 1 + rng() % 5; i < n; ++i)
      slices.emplace_back(rng() % 3000, rng() % 3 ? 1 : 1 + rng() % 200);
    const StepBatch batch = Apart(slices);
    const Shard shard = TwoGroups();
    const size_t block_tokens = rng() % 2 ? 16 : 32;
    const Reach reach = RandomReach(rng, 1500);
    const AttentionPlan plan = PlanOf(batch, shard, 1 + rng() % 16, block_tokens, reach);
    ExpectComplete(plan, batch, shard, block_tokens, reach);
    ExpectOneChunkEach(plan, reach);
  }
}

TEST(AttentionPlan, CoversRandomTreesOfPrefixesExactlyOnce) {
  std::mt19937 rng(20261121);
  for (int round = 0; round < 200; ++round) {
    constexpr size_t kBlock = 16, kBlocks = 40;
    const std::vector<Blocks> tables = SharingTables(rng, 1 + rng() % 20, kBlocks);
    std::vector<std::pair<size_t, const Blocks*>> sequences;
    for (const Blocks& table : tables) sequences.emplace_back(rng() % (kBlock * kBlocks), &table);
    const StepBatch batch = Decodes(sequences);
    const Reach reach = RandomReach(rng, 500);
    const AttentionPlan plan = PlanOf(batch, TwoGroups(), 1 + rng() % 8, kBlock, reach);
    ExpectComplete(plan, batch, TwoGroups(), kBlock, reach);
    ExpectOneChunkEach(plan, reach);
  }
}

// As threads of a rank make it together.
TEST(AttentionPlan, PiecesInAnyOrderMakeTheWholePlan) {
  std::mt19937 rng(20261126);
  AttentionPlans whole, pieces;  // used again and again, as by a decoder
  const Shard uneven = HeadsOf({7, 3, 7}), two = TwoGroups();
  const std::vector<AttendingLayer> layers = {{0, {}, &uneven}, {1, {.window = 512}, &two}};
  whole.Share(layers);
  pieces.Share(layers);
  ASSERT_EQ(pieces.kinds(), 2u);
  for (int round = 0; round < 100; ++round) {
    constexpr size_t kBlock = 16, kBlocks = 40;
    const std::vector<Blocks> tables = SharingTables(rng, 1 + rng() % 20, kBlocks);
    StepBatch batch;
    for (const Blocks& table : tables) {
      const size_t position = rng() % (kBlock * kBlocks - 100),
                   rows = rng() % 3 ? 1 : 1 + rng() % 90;
      batch.slices.push_back({batch.tokens.size(), rows, position, {table.data()}});
      batch.tokens.resize(batch.tokens.size() + rows);
    }
    const size_t threads = 1 + rng() % 9;
    const std::vector<StepBatch> parts = CutStep(batch, 1 + rng() % 4, kCutRows);
    whole.Build(batch, parts, threads, kBlock);
    for (const size_t kind : {1, 0}) pieces.Lay(kind, batch, parts, threads, kBlock);
    std::vector<size_t> order(1 + rng() % 9);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), rng);
    for (const size_t piece : order) pieces.Expand(piece, order.size());
    for (const size_t layer : {0, 1})
      for (size_t part = 0; part < parts.size(); ++part) {
        const AttentionPlan& found = pieces.of_layer(layer)[part];
        const AttentionPlan& expected = whole.of_layer(layer)[part];
        EXPECT_EQ(found.queries, expected.queries);
        EXPECT_EQ(found.items, expected.items);
        EXPECT_EQ(found.joins, expected.joins);
        EXPECT_EQ(found.sources, expected.sources);
        EXPECT_EQ(found.slots, expected.slots);
        EXPECT_EQ(found.shared_tokens, expected.shared_tokens);
        if (layer == 0) ExpectComplete(found, parts[part], uneven, kBlock);
      }
  }
}

// Threads take the longest first, whichever heads it is of.
TEST(AttentionPlan, ItemsOfUnequalGroupsAreSortedTogether) {
  const AttentionPlan plan = PlanOf(Apart({{5000, 64}, {900, 1}, {3000, 20}}), TwoGroups(), 4, 32);
  const auto cost = [](const AttentionItem& item) {
    return item.queries * (item.context_end - item.context_begin);
  };
  EXPECT_TRUE(std::is_sorted(plan.items.begin(), plan.items.end(),
                             [&](const auto& a, const auto& b) { return cost(a) > cost(b); }));
  std::set<uint32_t> groups;
  for (const AttentionItem& item : plan.items) groups.insert(item.group);
  EXPECT_EQ(groups.size(), 2u);
}

TEST(AttentionPlan, CutsALongContextOfOneSequenceOverThreads) {
  const AttentionPlan plan = PlanOf(Apart({{8191, 1}}), TwoGroups(), 8, 32);
  EXPECT_GE(plan.items.size(), 16u);
  EXPECT_EQ(plan.joins.size(), 2u);
}

// Long ones among many short ones would else keep one thread busy alone.
TEST(AttentionPlan, CutsTheLongContextsOfAMixedBatchAlone) {
  std::vector<std::pair<size_t, size_t>> slices(31, {255, 1});
  slices.emplace_back(16383, 1);
  const StepBatch batch = Apart(slices);
  const AttentionPlan plan = PlanOf(batch, TwoGroups(), 8, 32);
  ExpectComplete(plan, batch, TwoGroups(), 32);
  const size_t share = 2 * (31 * 256 + 16384) / (4 * 8);
  for (const AttentionItem& item : plan.items) {
    EXPECT_LE(item.context_end - item.context_begin, share + 32);
    EXPECT_EQ(item.slot >= 0, item.slice == 31);
  }
}

TEST(AttentionPlan, LeavesContextsWholeIfSequencesKeepThreadsBusy) {
  const AttentionPlan plan =
      PlanOf(Apart(std::vector<std::pair<size_t, size_t>>(16, {1000, 1})), TwoGroups(), 2, 32);
  EXPECT_EQ(plan.items.size(), 32u);
  EXPECT_TRUE(plan.joins.empty());
  EXPECT_EQ(plan.slots, 0u);
}

TEST(AttentionPlan, LayersOfTheSameWindowAndHeadsShareAPlan) {
  AttentionPlans plans;
  const Shard two = TwoGroups(), one = HeadsOf({10});
  const std::vector<AttendingLayer> layers = {{0, {}, &two},
                                              {1, {.window = 512}, &two},
                                              {2, {.window = 512}, &two},
                                              {3, {}, &two},
                                              {5, {}, &one}};  // layer 4 does not attend
  plans.Share(layers);
  const StepBatch step = Apart({{8191, 1}});
  plans.Build(step, {&step, 1}, 8, 32);
  const auto plan = [&](size_t layer) { return plans.of_layer(layer).data(); };
  EXPECT_NE(plan(0), plan(5));
  EXPECT_EQ(plan(5)->items[0].group, 0u);
  EXPECT_EQ(plan(0), plan(3));
  EXPECT_EQ(plan(1), plan(2));
  EXPECT_EQ(plan(0)->items[0].context_begin, 0u);
  EXPECT_GE(plan(1)->items[0].context_begin, 8191u - 512 - 32);
  EXPECT_EQ(plans.slots(), std::max(plan(0)->slots, plan(5)->slots));
}

TEST(AttentionPlan, IsEmptyForARankWithoutHeads) {
  const AttentionPlan plan = PlanOf(Apart({{10, 4}}), Shard{}, 4, 32);
  EXPECT_TRUE(plan.items.empty());
}

}  // namespace
}  // namespace pinion
