// The plans of a step's parts, which the stages of a pipeline compute.

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/decoder/attention_plan.h"
#include "engine/decoder/micro_batches.h"
#include "tests/engine/decoder/planned.h"

namespace pinion {
namespace {

using testing::Apart;
using testing::Blocks;
using testing::Decodes;
using testing::ExpectComplete;
using testing::HeadsOf;
using testing::PlansOf;
using testing::RandomReach;
using testing::SharingTables;

constexpr size_t kBlock = 16, kBlocks = 120;

// Decodes, and some prompts.
StepBatch RandomStep(std::mt19937& rng, const std::vector<Blocks>& tables) {
  StepBatch step;
  for (const Blocks& table : tables) {
    const size_t rows = rng() % 4 ? 1 : 1 + rng() % 150;
    const size_t position = rng() % (kBlock * kBlocks - rows);
    step.slices.push_back({step.tokens.size(), rows, position, {table.data()}});
    step.tokens.resize(step.tokens.size() + rows);
  }
  return step;
}

// How a row's context is divided: by row and group, (begin, end, tokens of the step's call).
using Divided = std::map<std::pair<size_t, size_t>, std::set<std::tuple<size_t, size_t, size_t>>>;

// Adds those of a part.
void AddDivided(const AttentionPlan& plan, size_t first_row, Divided& all) {
  for (const AttentionItem& item : plan.items) {
    const QueryToken& last = plan.queries[item.first_query + item.queries - 1];
    ASSERT_LE(item.context_end, last.position + 1u) << "a later part has not written more yet";
    for (uint32_t i = 0; i < item.queries; ++i) {
      const uint32_t row = plan.queries[item.first_query + i].row;
      const bool is_new = all[{first_row + row, item.group}]
                              .insert({item.context_begin, item.context_end, item.step_queries})
                              .second;
      ASSERT_TRUE(is_new);
    }
  }
}

// Into how many parts a step is cut follows from measured times, and so must not change how sums
// are rounded.
TEST(AttentionPlan, DividesContextsAlikeForAnyNumberOfParts) {
  std::mt19937 rng(20261127);
  for (int round = 0; round < 60; ++round) {
    const auto tables = SharingTables(rng, 1 + rng() % 20, kBlocks);
    const StepBatch step = RandomStep(rng, tables);
    const Shard heads = rng() % 2 ? HeadsOf({7, 3}) : HeadsOf({1, 1});
    const Reach reach = RandomReach(rng, 700);
    const size_t threads = 1 + rng() % 6;
    AttentionPlans plans;  // used again and again, as by a decoder
    plans.Share(std::vector<AttendingLayer>{{0, reach, &heads}});
    Divided whole;
    for (const size_t count : {1, 8, 2, 3, 4}) {
      const std::vector<StepBatch> parts = CutStep(step, count, kCutRows);
      plans.Build(step, parts, threads, kBlock);
      Divided all;
      for (const StepBatch& part : parts) {
        const AttentionPlan& plan = plans.of_layer(0)[part.place.part];
        ExpectComplete(plan, part, heads, kBlock, reach);
        AddDivided(plan, part.place.row, all);
      }
      if (count == 1) whole = all;
      ASSERT_EQ(all.size(), step.tokens.size() * heads.groups.size());
      ASSERT_EQ(all, whole) << count << " parts for " << threads << " threads";
    }
  }
}

// A part that reads a common prompt for one sequence alone saves nothing.
TEST(AttentionPlan, CountsTheBlocksThatItsPartReadsTogether) {
  const Blocks table(kBlocks, 5);
  const StepBatch step = Decodes(std::vector(5, std::pair(kBlock * 64, &table)));
  std::vector<size_t> shared, items;
  for (const AttentionPlan& plan :
       PlansOf(step, CutStep(step, 3, kCutRows), HeadsOf({4}), 1, kBlock)) {
    shared.push_back(plan.shared_tokens);
    items.push_back(plan.items.size());
  }
  EXPECT_EQ(shared, (std::vector<size_t>{kBlock * 64, kBlock * 64, 0}));
  EXPECT_EQ(items, (std::vector<size_t>{3, 3, 2})) << "the prompt, and each sequence's own token";
}

// Threads finish each of four parts of equal sequences before the next: each part has an item for
// every thread.
TEST(AttentionPlan, LeavesWorkForAllThreadsInEachOfFourParts) {
  constexpr size_t kThreads = 4;
  const StepBatch step = Apart(std::vector<std::pair<size_t, size_t>>(4, {kBlock * 1024 - 1, 1}));
  for (const AttentionPlan& plan :
       PlansOf(step, CutStep(step, 4, kCutRows), HeadsOf({8}), kThreads, kBlock))
    EXPECT_GE(plan.items.size(), kThreads);
}

}  // namespace
}  // namespace pinion
