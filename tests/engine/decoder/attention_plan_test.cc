#include "engine/decoder/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "kernels/kernels.h"

namespace pinion {
namespace {

Shard TwoGroups() {
  Shard shard;
  shard.groups = {{0, 0, 7}, {1, 7, 3}};
  return shard;
}

// Sequences that share no block.
StepBatch Batch(std::vector<std::pair<size_t, size_t>> position_and_rows) {
  static std::vector<int32_t> numbers = [] {
    std::vector<int32_t> all(1 << 16);
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

using Blocks = std::vector<int32_t>;

// Decoding sequences at these positions, over these block tables.
StepBatch Decodes(const std::vector<std::pair<size_t, const Blocks*>>& position_and_table) {
  StepBatch batch;
  for (const auto& [position, table] : position_and_table) {
    batch.slices.push_back({batch.tokens.size(), 1, position, {table->data()}});
    batch.tokens.push_back(0);
  }
  return batch;
}

// The ranges of context that a (row, group) goes over, with the block numbers they lead to.
struct Seen {
  size_t begin, end;
  Blocks blocks;
};
using SeenBy = std::map<std::pair<size_t, size_t>, std::vector<Seen>>;

SeenBy Collect(const AttentionPlan& plan, const StepBatch& batch, const Shard& shard,
               size_t block_tokens) {
  SeenBy seen;
  std::set<int32_t> parts;
  for (const AttentionItem& item : plan.items) {
    EXPECT_LE(item.queries * shard.groups[item.group].q_heads, kernels::kAttentionRows);
    EXPECT_EQ(item.context_begin % block_tokens, 0u);
    EXPECT_LT(item.context_begin, item.context_end);
    if (item.part >= 0) {
      EXPECT_TRUE(parts.insert(item.part).second);
    }
    const int32_t* table = batch.slices[item.slice].block_tables[0];
    Blocks blocks;
    for (size_t at = item.context_begin; table && at < item.context_end; at += block_tokens)
      blocks.push_back(table[at / block_tokens]);
    for (size_t i = 0; i < item.queries; ++i)
      seen[{plan.queries[item.first_query + i].row, item.group}].push_back(
          {item.context_begin, item.context_end, blocks});
  }
  EXPECT_EQ(parts.size(), plan.parts);
  for (auto& [row, ranges] : seen)
    std::sort(ranges.begin(), ranges.end(),
              [](const Seen& a, const Seen& b) { return a.begin < b.begin; });
  return seen;
}

// Every row's result comes from one item alone, or from a join of all that it is part of.
void ExpectJoined(const AttentionPlan& plan, const SeenBy& seen) {
  std::map<uint32_t, const AttentionItem*> item_of_part;
  std::map<std::pair<size_t, size_t>, size_t> results;
  for (const AttentionItem& item : plan.items) {
    if (item.part >= 0) item_of_part[static_cast<uint32_t>(item.part)] = &item;
    for (size_t i = 0; i < item.queries && item.part < 0; ++i) {
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
        const PartSource& source = plan.sources[join.first_source + i];
        const AttentionItem& item = *item_of_part.at(source.part);
        EXPECT_EQ(item.group, join.group);
        EXPECT_EQ(plan.queries[item.first_query + source.token + r].row, join.row + r);
      }
    }
  EXPECT_EQ(results.size(), seen.size());
  for (const auto& [row, count] : results) EXPECT_EQ(count, 1u) << "row " << row.first;
}

// Every query token of every group goes over all that it may see exactly once, and through its own
// blocks.
void ExpectComplete(const AttentionPlan& plan, const StepBatch& batch, const Shard& shard,
                    size_t block_tokens, const Reach& reach = {}) {
  const SeenBy seen = Collect(plan, batch, shard, block_tokens);
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

// Tables of `count` sequences as a prefix cache leaves them: each begins like an earlier one.
std::vector<Blocks> SharingTables(std::mt19937& rng, size_t count, size_t blocks) {
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

// What the kernel computes of the plan's items: each token sees its neighbours on both sides, as
// far as its sequence goes, whether or not contexts are cut.
TEST(AttentionPlan, LetsTokensSeeBothWays) {
  const StepBatch batch = Batch({{0, 1}, {0, 700}, {0, 40}});
  for (const int half : {0, 1, 8, 300, 5000}) {  // 0: no window
    const Reach reach = half == 0 ? Reach{.ahead = Reach::kWholeSequence}
                                  : Reach{.window = 2 * half + 1, .ahead = half};
    AttentionPlan plan;
    plan.Build(batch, TwoGroups(), 4, 32, reach);
    std::map<std::pair<size_t, size_t>, size_t> tokens;  // that a row and group see
    for (const AttentionItem& item : plan.items)
      for (size_t i = item.first_query; i < item.first_query + item.queries; ++i) {
        const int64_t last = plan.queries[i].position;
        const int64_t first = half == 0 ? 0 : last - reach.window + 1;
        const int64_t begin = std::max<int64_t>(first, item.context_begin);
        const int64_t end = std::min<int64_t>(last + 1, item.context_end);
        tokens[{plan.queries[i].row, item.group}] +=
            static_cast<size_t>(std::max<int64_t>(0, end - begin));
      }
    for (const auto& slice : batch.slices)
      for (size_t at = 0; at < slice.rows; ++at) {
        const size_t reached = half == 0 ? slice.rows : static_cast<size_t>(half);
        const size_t begin = at > reached ? at - reached : 0;
        const size_t want = std::min(slice.rows, at + reached + 1) - begin;
        for (size_t group = 0; group < 2; ++group)
          ASSERT_EQ((tokens[{slice.first_row + at, group}]), want) << at << ", " << half;
      }
  }
}

// Half of them without any limit.
Reach RandomReach(std::mt19937& rng, int most) {
  const int size = static_cast<int>(1 + rng() % static_cast<unsigned>(most));
  if (rng() % 2) return {};
  return rng() % 2 ? Reach{.window = size} : Reach{.chunk = size};
}

// The kernel has one limit for all tokens of an item.
void ExpectOneChunkEach(const AttentionPlan& plan, const Reach& reach) {
  if (reach.chunk == 0) return;
  for (const AttentionItem& item : plan.items)
    for (uint32_t i = 0; i < item.queries; ++i)
      ASSERT_EQ(reach.First(plan.queries[item.first_query + i].position),
                reach.First(plan.queries[item.first_query].position));
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
    const Reach reach = RandomReach(rng, 1500);
    plan.Build(batch, shard, 1 + rng() % 16, block_tokens, reach);
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
    AttentionPlan plan;
    plan.Build(batch, TwoGroups(), 1 + rng() % 8, kBlock, reach);
    ExpectComplete(plan, batch, TwoGroups(), kBlock, reach);
    ExpectOneChunkEach(plan, reach);
  }
}

// As threads of a rank make it together.
TEST(AttentionPlan, PiecesInAnyOrderMakeTheWholePlan) {
  std::mt19937 rng(20261126);
  AttentionPlans whole, pieces;  // used again and again, as by a decoder
  Shard uneven;
  uneven.groups = {{0, 0, 7}, {1, 7, 3}, {2, 10, 7}};
  const Shard two = TwoGroups();
  const std::vector<AttendingLayer> layers = {{0, {}, &uneven}, {1, {.window = 512}, &two}};
  whole.Share(layers);
  pieces.Share(layers);
  ASSERT_EQ(pieces.kinds(), 2u);
  for (int round = 0; round < 100; ++round) {
    constexpr size_t kBlock = 16, kBlocks = 40;
    const std::vector<Blocks> tables = SharingTables(rng, 1 + rng() % 20, kBlocks);
    StepBatch batch;
    for (const Blocks& table : tables) {
      const size_t position = rng() % (kBlock * kBlocks - 100), rows = rng() % 3 ? 1 : rng() % 90;
      batch.slices.push_back({batch.tokens.size(), rows, position, {table.data()}});
      batch.tokens.resize(batch.tokens.size() + rows);
    }
    const size_t threads = 1 + rng() % 9;
    whole.Build(batch, threads, kBlock);
    for (const size_t kind : {1, 0}) pieces.Lay(kind, batch, threads, kBlock);
    std::vector<size_t> order(1 + rng() % 9);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), rng);
    for (const size_t piece : order) pieces.Expand(piece, order.size());
    for (const size_t layer : {0, 1}) {
      const AttentionPlan &found = pieces.of_layer(layer), &expected = whole.of_layer(layer);
      EXPECT_EQ(found.queries, expected.queries);
      EXPECT_EQ(found.items, expected.items);
      EXPECT_EQ(found.joins, expected.joins);
      EXPECT_EQ(found.sources, expected.sources);
      EXPECT_EQ(found.parts, expected.parts);
      EXPECT_EQ(found.shared_tokens, expected.shared_tokens);
    }
    ExpectComplete(pieces.of_layer(0), batch, uneven, kBlock);
  }
}

// Threads take the longest first, whichever heads it is of.
TEST(AttentionPlan, ItemsOfUnequalGroupsAreSortedTogether) {
  AttentionPlan plan;
  plan.Build(Batch({{5000, 64}, {900, 1}, {3000, 20}}), TwoGroups(), 4, 32);
  const auto cost = [](const AttentionItem& item) {
    return item.queries * (item.context_end - item.context_begin);
  };
  EXPECT_TRUE(std::is_sorted(plan.items.begin(), plan.items.end(),
                             [&](const auto& a, const auto& b) { return cost(a) > cost(b); }));
  std::set<uint32_t> groups;
  for (const AttentionItem& item : plan.items) groups.insert(item.group);
  EXPECT_EQ(groups.size(), 2u);
}

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
  AttentionPlan plan;
  plan.Build(batch, TwoGroups(), 1, 32);
  ExpectComplete(plan, batch, TwoGroups(), 32);
  EXPECT_EQ(plan.shared_tokens, 7u * 2048);
  size_t read = 0;
  for (const AttentionItem& item : plan.items)
    if (item.group == 1) read += item.context_end - item.context_begin;
  EXPECT_EQ(read, 2048u + 8 * 3);
}

// Layers with the same window may have several tables. Sequences whose blocks are the same in one
// of them need not share them in another: each may have computed its own at the same time.
TEST(AttentionPlan, SharesWhatAllTablesOfAPlanAgreeOn) {
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
  plans.Build(batch, 1, 32);
  EXPECT_EQ(&plans.of_layer(0), &plans.of_layer(1));
  EXPECT_EQ(plans.of_layer(0).shared_tokens, 16u * 32);
  plans.Share(std::vector<AttendingLayer>{{0, {}, &two, 0}, {1, {}, &two, 0}});
  plans.Build(batch, 1, 32);
  EXPECT_EQ(plans.of_layer(0).shared_tokens, 2040u / 32 * 32);
}

// Blocks that a window hides from one sequence and not from another.
TEST(AttentionPlan, DoesNotShareAcrossWindows) {
  const Blocks table(70, 5);
  const StepBatch batch = Decodes({{2000, &table}, {2100, &table}});
  AttentionPlan plan;
  plan.Build(batch, TwoGroups(), 1, 32, {.window = 1000});
  ExpectComplete(plan, batch, TwoGroups(), 32, {.window = 1000});
  EXPECT_EQ(plan.shared_tokens, 0u);
}

// They are computed elsewhere (forward_index.cc).
TEST(AttentionPlan, LeavesOutRowsThatChooseTheirTokens) {
  AttentionPlan plan;
  plan.Build(Batch({{90, 20}, {99, 1}, {100, 1}}), TwoGroups(), 1, 32, {.chosen = 100});
  std::set<uint32_t> rows;
  for (const QueryToken& query : plan.queries) rows.insert(query.row);
  EXPECT_EQ(rows.size(), 11u);
  EXPECT_EQ(*rows.rbegin(), 20u);
  for (const QueryToken& query : plan.queries) EXPECT_LT(query.position, 100u);
}

// The second sequence's own chunk begins behind what both have in common.
TEST(AttentionPlan, DoesNotShareWhatAnotherChunkHides) {
  const Blocks table(70, 5);
  const StepBatch batch = Decodes({{900, &table}, {1100, &table}});
  AttentionPlan plan;
  plan.Build(batch, TwoGroups(), 1, 32, {.chunk = 1000});
  ExpectComplete(plan, batch, TwoGroups(), 32, {.chunk = 1000});
  EXPECT_EQ(plan.shared_tokens, 0u);
  for (const AttentionItem& item : plan.items)
    if (item.slice == 1) {
      EXPECT_EQ(item.context_begin, 1000u / 32 * 32);
    }
}

TEST(AttentionPlan, CutsALongContextOfOneSequenceOverThreads) {
  AttentionPlan plan;
  plan.Build(Batch({{8191, 1}}), TwoGroups(), 8, 32);
  EXPECT_GE(plan.items.size(), 16u);
  EXPECT_EQ(plan.joins.size(), 2u);
}

// Long ones among many short ones would else keep one thread busy alone.
TEST(AttentionPlan, CutsTheLongContextsOfAMixedBatchAlone) {
  std::vector<std::pair<size_t, size_t>> slices(31, {255, 1});
  slices.emplace_back(16383, 1);
  const StepBatch batch = Batch(slices);
  AttentionPlan plan;
  plan.Build(batch, TwoGroups(), 8, 32);
  ExpectComplete(plan, batch, TwoGroups(), 32);
  const size_t share = 2 * (31 * 256 + 16384) / (4 * 8);
  for (const AttentionItem& item : plan.items) {
    EXPECT_LE(item.context_end - item.context_begin, share + 32);
    EXPECT_EQ(item.part >= 0, item.slice == 31);
  }
}

TEST(AttentionPlan, CutsASharedRunOverThreads) {
  const std::vector<Blocks> tables(6, Blocks(65, 5));
  std::vector<std::pair<size_t, const Blocks*>> sequences;
  for (const Blocks& table : tables) sequences.emplace_back(2048, &table);
  const StepBatch batch = Decodes(sequences);
  AttentionPlan plan;
  plan.Build(batch, TwoGroups(), 2, 32);
  ExpectComplete(plan, batch, TwoGroups(), 32);
  size_t shared = 0;
  for (const AttentionItem& item : plan.items) shared += item.context_end <= 2048;
  EXPECT_EQ(shared, 2u * 4);  // a quarter of the run and of its group each
}

TEST(AttentionPlan, LeavesContextsWholeIfSequencesKeepThreadsBusy) {
  AttentionPlan plan;
  plan.Build(Batch(std::vector<std::pair<size_t, size_t>>(16, {1000, 1})), TwoGroups(), 2, 32);
  EXPECT_EQ(plan.items.size(), 32u);
  EXPECT_TRUE(plan.joins.empty());
  EXPECT_EQ(plan.parts, 0u);
}

TEST(AttentionPlan, SkipsBlocksWhollyBeforeTheWindow) {
  AttentionPlan plan;
  plan.Build(Batch({{1000, 1}, {5, 1}}), TwoGroups(), 1, 32, {.window = 100});
  ASSERT_EQ(plan.items.size(), 4u);
  for (const AttentionItem& item : plan.items) {  // position 1000 sees 901 to 1000
    EXPECT_EQ(item.context_begin, item.slice == 0 ? 896u : 0u);
    EXPECT_EQ(item.context_end, item.slice == 0 ? 1001u : 6u);
  }
}

TEST(AttentionPlan, LayersOfTheSameWindowAndHeadsShareAPlan) {
  AttentionPlans plans;
  const Shard two = TwoGroups();
  HeadShare one;
  one.groups = {{0, 0, 10}};
  const std::vector<AttendingLayer> layers = {{0, {}, &two},
                                              {1, {.window = 512}, &two},
                                              {2, {.window = 512}, &two},
                                              {3, {}, &two},
                                              {5, {}, &one}};  // layer 4 does not attend
  plans.Share(layers);
  plans.Build(Batch({{8191, 1}}), 8, 32);
  EXPECT_NE(&plans.of_layer(0), &plans.of_layer(5));
  EXPECT_EQ(plans.of_layer(5).items[0].group, 0u);
  EXPECT_EQ(&plans.of_layer(0), &plans.of_layer(3));
  EXPECT_EQ(&plans.of_layer(1), &plans.of_layer(2));
  EXPECT_EQ(plans.of_layer(0).items[0].context_begin, 0u);
  EXPECT_GE(plans.of_layer(1).items[0].context_begin, 8191u - 512 - 32);
  EXPECT_EQ(plans.parts(), std::max(plans.of_layer(0).parts, plans.of_layer(5).parts));
}

TEST(AttentionPlan, IsEmptyForARankWithoutHeads) {
  AttentionPlan plan;
  plan.Build(Batch({{10, 4}}), Shard{}, 4, 32);
  EXPECT_TRUE(plan.items.empty());
}

}  // namespace
}  // namespace pinion
