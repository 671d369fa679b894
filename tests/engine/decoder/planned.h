#pragma once

// Steps to plan the attention of, and the rules that hold for every plan.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "engine/decoder/attention_plan.h"
#include "kernels/kernels.h"

namespace pinion::testing {

using Blocks = std::vector<int32_t>;

inline Shard HeadsOf(const std::vector<size_t>& q_heads) {
  Shard shard;
  size_t first = 0;
  for (const size_t count : q_heads) {
    shard.groups.push_back({shard.groups.size(), first, count});
    first += count;
  }
  return shard;
}

inline Shard TwoGroups() { return HeadsOf({7, 3}); }

// Sequences that share no block.
inline StepBatch Apart(const std::vector<std::pair<size_t, size_t>>& position_and_rows) {
  static const Blocks numbers = [] {
    Blocks all(1 << 16);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
    return all;
  }();
  StepBatch batch;
  for (const auto& [position, rows] : position_and_rows) {
    const int32_t* table = numbers.data() + batch.slices.size() * 1024;
    batch.slices.push_back({batch.tokens.size(), rows, position, {table}});
    batch.tokens.resize(batch.tokens.size() + rows);
  }
  return batch;
}

// Decoding sequences at these positions, over these block tables.
inline StepBatch Decodes(const std::vector<std::pair<size_t, const Blocks*>>& position_and_table) {
  StepBatch batch;
  for (const auto& [position, table] : position_and_table) {
    batch.slices.push_back({batch.tokens.size(), 1, position, {table->data()}});
    batch.tokens.push_back(0);
  }
  return batch;
}

// Tables of `count` sequences as a prefix cache leaves them: many begin like an earlier one.
inline std::vector<Blocks> SharingTables(std::mt19937& rng, size_t count, size_t blocks) {
  std::vector<Blocks> tables;
  int32_t fresh = 0;
  for (size_t i = 0; i < count; ++i) {
    Blocks table;
    if (i > 0 && rng() % 4) {
      const Blocks& like = tables[rng() % i];
      table.assign(like.begin(), like.begin() + static_cast<ptrdiff_t>(rng() % (blocks + 1)));
    }
    while (table.size() < blocks) table.push_back(fresh++);
    tables.push_back(table);
  }
  return tables;
}

// Half of them without any limit.
inline Reach RandomReach(std::mt19937& rng, int most) {
  const int size = static_cast<int>(1 + rng() % static_cast<unsigned>(most));
  if (rng() % 2) return {};
  return rng() % 2 ? Reach{.window = size} : Reach{.chunk = size};
}

inline std::vector<AttentionPlan> PlansOf(const StepBatch& step, std::span<const StepBatch> parts,
                                          const HeadShare& heads, size_t threads,
                                          size_t block_tokens, const Reach& reach = {}) {
  AttentionPlans plans;
  plans.Share(std::vector<AttendingLayer>{{0, reach, &heads}});
  plans.Build(step, parts, threads, block_tokens);
  return {plans.of_layer(0).begin(), plans.of_layer(0).end()};
}

// Of a step that is not cut.
inline AttentionPlan PlanOf(const StepBatch& step, const HeadShare& heads, size_t threads,
                            size_t block_tokens, const Reach& reach = {}) {
  return PlansOf(step, {&step, 1}, heads, threads, block_tokens, reach).at(0);
}

// The ranges of context that a (row, group) goes over, with the block numbers they lead to.
struct Seen {
  size_t begin, end;
  Blocks blocks;
};
using SeenBy = std::map<std::pair<size_t, size_t>, std::vector<Seen>>;

inline SeenBy CollectSeen(const AttentionPlan& plan, const StepBatch& batch, const Shard& shard,
                          size_t block_tokens) {
  SeenBy seen;
  std::set<int32_t> slots;
  for (const AttentionItem& item : plan.items) {
    EXPECT_LE(item.queries * shard.groups[item.group].q_heads, kernels::kAttentionRows);
    EXPECT_EQ(item.context_begin % block_tokens, 0u);
    EXPECT_LT(item.context_begin, item.context_end);
    if (item.slot >= 0) {
      EXPECT_TRUE(slots.insert(item.slot).second);
    }
    const int32_t* table = batch.slices[item.slice].block_tables[0];
    Blocks blocks;
    for (size_t at = item.context_begin; table && at < item.context_end; at += block_tokens)
      blocks.push_back(table[at / block_tokens]);
    for (size_t i = 0; i < item.queries; ++i)
      seen[{plan.queries[item.first_query + i].row, item.group}].push_back(
          {item.context_begin, item.context_end, blocks});
  }
  EXPECT_EQ(slots.size(), plan.slots);
  for (auto& [row, ranges] : seen)
    std::sort(ranges.begin(), ranges.end(),
              [](const Seen& a, const Seen& b) { return a.begin < b.begin; });
  return seen;
}

// Every row's result comes from one item alone, or from a join of all that it is part of.
inline void ExpectJoined(const AttentionPlan& plan, const SeenBy& seen) {
  std::map<uint32_t, const AttentionItem*> item_of_slot;
  std::map<std::pair<size_t, size_t>, size_t> results;
  for (const AttentionItem& item : plan.items) {
    if (item.slot >= 0) item_of_slot[static_cast<uint32_t>(item.slot)] = &item;
    for (size_t i = 0; i < item.queries && item.slot < 0; ++i) {
      const size_t first = plan.queries[item.first_query].row;
      EXPECT_EQ(plan.queries[item.first_query + i].row, first + i) << "merged as neighbours";
      ++results[{first + i, item.group}];
    }
  }
  for (const AttentionJoin& join : plan.joins)
    for (size_t r = 0; r < join.rows; ++r) {
      ++results[{join.row + r, join.group}];
      EXPECT_EQ(join.sources, (seen.at({join.row + r, join.group}).size()));
      for (size_t i = 0; i < join.sources; ++i) {
        const SlotToken& source = plan.sources[join.first_source + i];
        const AttentionItem& item = *item_of_slot.at(source.slot);
        EXPECT_EQ(item.group, join.group);
        EXPECT_EQ(plan.queries[item.first_query + source.token + r].row, join.row + r);
      }
    }
  EXPECT_EQ(results.size(), seen.size());
  for (const auto& [row, count] : results) EXPECT_EQ(count, 1u) << "row " << row.first;
}

// Every query token of every group goes over all that it may see exactly once, and through its own
// blocks. batch: the step, or the part of it that the plan is of.
inline void ExpectComplete(const AttentionPlan& plan, const StepBatch& batch, const Shard& shard,
                           size_t block_tokens, const Reach& reach = {}) {
  const SeenBy seen = CollectSeen(plan, batch, shard, block_tokens);
  for (const auto& slice : batch.slices)
    for (size_t g = 0; g < shard.groups.size(); ++g)
      for (size_t t = 0; t < slice.rows; ++t) {
        const auto& ranges = seen.at({slice.first_row + t, g});
        const size_t end = slice.first_position + t + 1;
        size_t next = ranges.front().begin;
        EXPECT_LE(next, reach.First(end - 1));
        for (const Seen& range : ranges) {
          EXPECT_EQ(range.begin, next);
          next = range.end;
          for (size_t i = 0; i < range.blocks.size(); ++i)
            EXPECT_EQ(range.blocks[i], slice.block_tables[0][range.begin / block_tokens + i]);
        }
        EXPECT_GE(next, end);
      }
  ExpectJoined(plan, seen);
}

// The kernel has one limit for all tokens of an item.
inline void ExpectOneChunkEach(const AttentionPlan& plan, const Reach& reach) {
  if (reach.chunk == 0) return;
  for (const AttentionItem& item : plan.items)
    for (uint32_t i = 0; i < item.queries; ++i)
      ASSERT_EQ(reach.First(plan.queries[item.first_query + i].position),
                reach.First(plan.queries[item.first_query].position));
}

}  // namespace pinion::testing
