// Decoding sequences that begin with the same blocks read them together.

#include <gtest/gtest.h>

#include <numeric>
#include <utility>
#include <vector>

#include "engine/decoder/attention_plan.h"
#include "tests/engine/decoder/planned.h"

namespace pinion {
namespace {

using testing::Blocks;
using testing::Decodes;
using testing::ExpectComplete;
using testing::PlanOf;
using testing::TwoGroups;

TEST(AttentionPlan, ReadsACommonPromptOnceForAllSequences) {
  std::vector<Blocks> tables;
  for (int32_t s = 0; s < 8; ++s) {
    Blocks table(64);
    for (int32_t i = 0; i < 64; ++i) table[static_cast<size_t>(i)] = i;  // 2048 tokens
    table.push_back(100 + s);
    tables.push_back(table);
  }
  std::vector<std::pair<size_t, const Blocks*>> sequences;
  for (const Blocks& table : tables) sequences.emplace_back(2050, &table);
  const StepBatch batch = Decodes(sequences);
  const AttentionPlan plan = PlanOf(batch, TwoGroups(), 1, 32);
  ExpectComplete(plan, batch, TwoGroups(), 32);
  EXPECT_EQ(plan.shared_tokens, 7u * 2048);
  size_t read = 0;
  for (const AttentionItem& item : plan.items)
    if (item.group == 1) read += item.context_end - item.context_begin;
  EXPECT_EQ(read, 2048u + 8 * 3);
}

// Layers with the same window may have several tables. Sequences whose blocks are the same in one
// of them need not share them in another: each may have computed its own at the same time.
TEST(AttentionPlan, SharesBlocksThatAllTablesOfAPlanAgreeOn) {
  Blocks common(64, 0), part(64, 0);
  std::iota(common.begin(), common.end(), 0);
  std::iota(part.begin(), part.end(), 100);
  Blocks apart = part;
  for (size_t i = 16; i < 64; ++i) apart[i] += 100;
  StepBatch batch = Decodes({{2040, &common}, {2040, &common}});
  batch.slices[0].block_tables[1] = part.data();
  batch.slices[1].block_tables[1] = apart.data();
  AttentionPlans plans;
  const Shard two = TwoGroups();
  plans.Share(std::vector<AttendingLayer>{{0, {}, &two, 0}, {1, {}, &two, 1}});
  plans.Build(batch, {&batch, 1}, 1, 32);
  EXPECT_EQ(plans.of_layer(0).data(), plans.of_layer(1).data());
  EXPECT_EQ(plans.of_layer(0)[0].shared_tokens, 16u * 32);
  plans.Share(std::vector<AttendingLayer>{{0, {}, &two, 0}, {1, {}, &two, 0}});
  plans.Build(batch, {&batch, 1}, 1, 32);
  EXPECT_EQ(plans.of_layer(0)[0].shared_tokens, 2040u / 32 * 32);
}

TEST(AttentionPlan, CutsASharedRunOverThreads) {
  const std::vector<Blocks> tables(6, Blocks(65, 5));
  std::vector<std::pair<size_t, const Blocks*>> sequences;
  for (const Blocks& table : tables) sequences.emplace_back(2048, &table);
  const StepBatch batch = Decodes(sequences);
  const AttentionPlan plan = PlanOf(batch, TwoGroups(), 2, 32);
  ExpectComplete(plan, batch, TwoGroups(), 32);
  size_t shared = 0;
  for (const AttentionItem& item : plan.items) shared += item.context_end <= 2048;
  EXPECT_EQ(shared, 2u * 4);  // a quarter of the run and of its group each
}

// Blocks that a window hides from one sequence and not from another.
TEST(AttentionPlan, DoesNotShareAcrossWindows) {
  const Blocks table(70, 5);
  const StepBatch batch = Decodes({{2000, &table}, {2100, &table}});
  const AttentionPlan plan = PlanOf(batch, TwoGroups(), 1, 32, {.window = 1000});
  ExpectComplete(plan, batch, TwoGroups(), 32, {.window = 1000});
  EXPECT_EQ(plan.shared_tokens, 0u);
}

// The second sequence's own chunk begins behind what both have in common.
TEST(AttentionPlan, DoesNotShareBlocksThatAnotherChunkHides) {
  const Blocks table(70, 5);
  const StepBatch batch = Decodes({{900, &table}, {1100, &table}});
  const AttentionPlan plan = PlanOf(batch, TwoGroups(), 1, 32, {.chunk = 1000});
  ExpectComplete(plan, batch, TwoGroups(), 32, {.chunk = 1000});
  EXPECT_EQ(plan.shared_tokens, 0u);
  for (const AttentionItem& item : plan.items)
    if (item.slice == 1) {
      EXPECT_EQ(item.context_begin, 1000u / 32 * 32);
    }
}

}  // namespace
}  // namespace pinion
