// The plans of a step's parts, which the stages of a pipeline compute.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "engine/decoder/attention_plan.h"
#include "engine/decoder/micro_batches.h"
#include "kernels/kernels.h"

namespace pinion {
namespace {

constexpr size_t kBlock = 16, kBlocks = 120;

Shard HeadsOf(std::vector<size_t> q_heads) {
  Shard shard;
  size_t first = 0;
  for (const size_t count : q_heads) {
    shard.groups.push_back({shard.groups.size(), first, count});
    first += count;
  }
  return shard;
}

// Tables as a prefix cache leaves them: many begin like an earlier one.
std::vector<std::vector<int32_t>> SharingTables(std::mt19937& rng, size_t count) {
  std::vector<std::vector<int32_t>> tables;
  int32_t fresh = 0;
  for (size_t i = 0; i < count; ++i) {
    std::vector<int32_t> table;
    if (i > 0 && rng() % 4) {
      const auto& like = tables[rng() % i];
      table.assign(like.begin(), like.begin() + static_cast<ptrdiff_t>(rng() % (kBlocks + 1)));
    }
    while (table.size() < kBlocks) table.push_back(fresh++);
    tables.push_back(table);
  }
  return tables;
}

// Decodes, and some prompts.
StepBatch RandomStep(std::mt19937& rng, const std::vector<std::vector<int32_t>>& tables) {
  StepBatch step;
  for (const std::vector<int32_t>& table : tables) {
    const size_t rows = rng() % 4 ? 1 : 1 + rng() % 150;
    const size_t position = rng() % (kBlock * kBlocks - rows);
    step.slices.push_back({step.tokens.size(), rows, position, {table.data()}});
    step.tokens.resize(step.tokens.size() + rows);
  }
  return step;
}

// How a row's context is divided: by row and group, (begin, end, tokens of the step's call).
using Divided = std::map<std::pair<size_t, size_t>, std::set<std::tuple<size_t, size_t, size_t>>>;

// Adds those of a part, and checks that every item leads to its tokens' own blocks.
void Collect(const AttentionPlan& plan, const MicroBatch& part, const Shard& heads, Divided& all) {
  for (const AttentionItem& item : plan.items)
    for (uint32_t i = 0; i < item.queries; ++i) {
      const uint32_t row = plan.queries[item.first_query + i].row;
      const auto own =
          std::find_if(part.batch.slices.begin(), part.batch.slices.end(),
                       [&](const StepBatch::Slice& s) { return row < s.first_row + s.rows; });
      const auto first = item.context_begin / kBlock, last = (item.context_end - 1) / kBlock;
      const int32_t* table = part.batch.slices[item.slice].block_tables[0];
      ASSERT_TRUE(std::equal(table + first, table + last + 1, own->block_tables[0] + first));
      ASSERT_LE(item.queries * heads.groups[item.group].q_heads, kernels::kAttentionRows);
      const bool is_new = all[{part.first_row + row, item.group}]
                              .insert({item.context_begin, item.context_end, item.step_queries})
                              .second;
      ASSERT_TRUE(is_new);
    }
}

Divided DivideInParts(const StepBatch& step, const Shard& heads, size_t threads, const Reach& reach,
                      size_t parts) {
  Divided all;
  AttentionPlan plan;
  for (const MicroBatch& part : CutStep(step, parts, kCutRows)) {
    plan.Build(part.batch, heads, threads, kBlock, reach);
    Collect(plan, part, heads, all);
  }
  return all;
}

// Into how many parts a step is cut follows from measured times, and so must not change how sums
// are rounded.
TEST(AttentionPlan, DividesContextsAlikeForAnyNumberOfParts) {
  std::mt19937 rng(20261127);
  for (int round = 0; round < 60; ++round) {
    const auto tables = SharingTables(rng, 1 + rng() % 20);
    const StepBatch step = RandomStep(rng, tables);
    const Shard heads = rng() % 2 ? HeadsOf({7, 3}) : HeadsOf({1, 1});
    const int size = static_cast<int>(1 + rng() % 700);
    const Reach reach = std::vector<Reach>{{}, {.window = size}, {.chunk = size}}[rng() % 3];
    const size_t threads = 1 + rng() % 6;
    const Divided whole = DivideInParts(step, heads, threads, reach, 1);
    ASSERT_EQ(whole.size(), step.tokens.size() * heads.groups.size());
    for (const size_t parts : {2, 3, 4, 8})
      ASSERT_EQ(DivideInParts(step, heads, threads, reach, parts), whole)
          << parts << " parts for " << threads << " threads";
  }
}

// A part that reads a common prompt for one sequence alone saves nothing.
TEST(AttentionPlan, CountsWhatItsPartReadsTogether) {
  const std::vector<int32_t> table(kBlocks, 5);
  StepBatch step;
  for (size_t i = 0; i < 5; ++i) step.slices.push_back({i, 1, kBlock * 64, {table.data()}});
  step.tokens.resize(5);
  const Shard heads = HeadsOf({4});
  std::vector<size_t> shared;
  AttentionPlan plan;
  for (const MicroBatch& part : CutStep(step, 3, kCutRows)) {
    plan.Build(part.batch, heads, 1, kBlock);
    shared.push_back(plan.shared_tokens);
  }
  EXPECT_EQ(shared, (std::vector<size_t>{kBlock * 64, kBlock * 64, 0}));
}

// Threads finish each of four parts of equal sequences before the next: each part has an item for
// every thread.
TEST(AttentionPlan, LeavesWorkForAllThreadsInEachOfFourParts) {
  constexpr size_t kThreads = 4;
  std::vector<int32_t> table(4 * 1024);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
  StepBatch step;
  for (size_t i = 0; i < 4; ++i)
    step.slices.push_back({i, 1, kBlock * 1024 - 1, {table.data() + i * 1024}});
  step.tokens.resize(4);
  const Shard heads = HeadsOf({8});
  AttentionPlan plan;
  for (const MicroBatch& part : CutStep(step, 4, kCutRows)) {
    plan.Build(part.batch, heads, kThreads, kBlock);
    EXPECT_GE(plan.items.size(), kThreads);
  }
}

}  // namespace
}  // namespace pinion
