#include "engine/kv/block_tables.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/kv/table_blocks.h"

namespace pinion {
namespace {

constexpr size_t kBlock = 4;
// 10 tokens begin in one block and end in the third or fourth behind it.
const std::vector<Reach> kFullAndWindow = {{}, {.window = 10}};

std::vector<BlockHash> Hashes(size_t blocks) {
  std::vector<BlockHash> hashes;
  for (size_t i = 0; i < blocks; ++i) {
    std::vector<int32_t> tokens(kBlock);
    std::iota(tokens.begin(), tokens.end(), static_cast<int32_t>(i * kBlock));
    hashes.push_back(HashBlock(i == 0 ? BlockHash{} : hashes.back(), tokens));
  }
  return hashes;
}

// A sequence of so many blocks that is computed one by one, and ends.
void Compute(BlockPool& pool, BlockTables& tables, const std::vector<BlockHash>& hashes) {
  BlockTables::Tables own(tables.count());
  for (size_t block = 0; block < hashes.size(); ++block) {
    tables.Grow(own, (block + 1) * kBlock);
    tables.Publish(own, hashes, block, block + 1);
    tables.DropBehind(own, (block + 1) * kBlock);
  }
  tables.Release(own);
  EXPECT_EQ(pool.used(), 0u);
}

// By walking over every sequence instead of by the formula.
TEST(MostBlocks, AreThoseOfTheWorstAlignment) {
  for (const Reach reach : {Reach{}, {.window = 1}, {.window = 10}, {.chunk = 12}})
    for (const size_t step : {1u, 3u, 8u})
      for (const size_t tokens : {1u, 4u, 5u, 40u, 61u}) {
        size_t most = 0, of_alignments = 0;
        for (size_t begin = 0; begin < tokens; begin += step) {
          const size_t end = std::min(tokens, begin + step);
          most = std::max(most, (end + kBlock - 1) / kBlock - reach.First(begin) / kBlock);
        }
        // Steps begin anywhere, as other sequences take parts of them.
        for (size_t begin = 0; begin < tokens; ++begin) {
          const size_t end = std::min(tokens, begin + step);
          of_alignments =
              std::max(of_alignments, (end + kBlock - 1) / kBlock - reach.First(begin) / kBlock);
        }
        const size_t counted = MostBlocks(reach, tokens, step, kBlock);
        EXPECT_GE(counted, most) << reach.window << " " << reach.chunk << " " << tokens;
        EXPECT_LE(counted, of_alignments + 1)
            << reach.window << " " << reach.chunk << " " << tokens;
      }
  EXPECT_EQ((MostBlocks(Reach{.window = 10}, 1000, 1, kBlock)), 4u);
}

TEST(LongestIn, IsAsLongAsBlocksLast) {
  const std::vector<Reach> full = {{}}, window = {{.window = 10}};
  EXPECT_EQ(LongestIn(5, full, 100, kBlock), 20u);
  EXPECT_EQ(LongestIn(25, full, 100, kBlock), 100u);
  // The window takes 4 blocks once the sequence is longer.
  EXPECT_EQ(LongestIn(3, window, 100, kBlock), 12u);
  EXPECT_EQ(LongestIn(4, window, 100, kBlock), 100u);
  EXPECT_EQ(LongestIn(4 + 7, kFullAndWindow, 100, kBlock), 28u);
}

TEST(BlockTables, GiveBackBlocksBehindTheWindow) {
  BlockPool pool(100, kBlock, false);
  BlockTables tables(pool, kFullAndWindow);
  BlockTables::Tables own(2);
  tables.Grow(own, 20);
  EXPECT_EQ(pool.used(), 10u);
  tables.DropBehind(own, 20);  // sees 11 to 20, so the first two blocks are done with
  EXPECT_EQ(own[0].held(), 5u);
  EXPECT_EQ(own[1].gone, 2u);
  EXPECT_EQ(own[1].blocks[1], -1);
  EXPECT_GE(own[1].blocks[2], 0);
  EXPECT_EQ(pool.used(), 8u);
  EXPECT_EQ(tables.Short(own, 21), 2u);
  tables.Release(own);
  EXPECT_EQ(pool.used(), 0u);
}

TEST(BlockTables, APrefixOfAWindowIsTheTokensThatTheNextOneSees) {
  BlockPool pool(100, kBlock, true);
  BlockTables tables(pool, kFullAndWindow);
  const auto hashes = Hashes(10);
  EXPECT_EQ(tables.LongestCached(hashes), 0u);
  Compute(pool, tables, hashes);
  EXPECT_EQ(tables.LongestCached(hashes), 10u);
  EXPECT_EQ(tables.LongestCached(std::span(hashes).first(7)), 7u);
  BlockTables::Tables own(2);
  tables.TakePrefix(own, std::span(hashes).first(7));
  EXPECT_EQ(own[0].held(), 7u);
  EXPECT_EQ(own[1].gone, 4u);  // token 28 sees 19 to 28
  EXPECT_EQ(own[1].held(), 3u);
  for (size_t block = 4; block < 7; ++block) EXPECT_NE(own[0].blocks[block], own[1].blocks[block]);
  tables.Release(own);
}

// The pool evicts what lies behind windows first, as that was given back first.
TEST(BlockTables, APrefixWithoutItsWindowIsNotUsedThoughALongerOneIs) {
  BlockPool pool(20, kBlock, true);
  BlockTables tables(pool, kFullAndWindow);
  const auto hashes = Hashes(10);
  Compute(pool, tables, hashes);
  std::vector<int32_t> others;
  for (int i = 0; i < 6; ++i) others.push_back(pool.Allocate().value());
  EXPECT_EQ(tables.LongestCached(hashes), 10u);
  EXPECT_EQ(tables.LongestCached(std::span(hashes).first(7)), 0u);
  // Without the end of the table that keeps everything it is shorter, and has no window there.
  for (int i = 0; i < 6; ++i) others.push_back(pool.Allocate().value());
  EXPECT_LT(tables.LongestCached(hashes), 10u);
  for (const int32_t block : others) pool.Release(block);
}

// The next turn may begin with a block less than was computed, so that what it sees begins before
// what the sequence holds at its end.
TEST(BlockTables, SpareBlocksBehindTheLastWindowsThatNoPrefixNeeds) {
  const auto hashes = Hashes(10);
  for (const size_t kept : {0u, 5u}) {
    BlockPool pool(20, kBlock, true);
    BlockTables tables(pool, kFullAndWindow);
    BlockTables::Tables own(2);
    for (size_t block = 0; block < 10; ++block) {
      tables.Grow(own, (block + 1) * kBlock);
      tables.Publish(own, hashes, block, block + 1);
      tables.DropBehind(own, (block + 1) * kBlock);
      tables.SpareBehind(own, std::span(hashes).first(block + 1), std::vector<size_t>{kept});
    }
    tables.Release(own);
    // Behind the windows of 10 and of 9 blocks lie six, behind those of 5 and of 4 one.
    const size_t spare = kept == 0 ? 6 : 6 - 4;
    for (size_t i = 0; i < spare; ++i) ASSERT_TRUE(pool.Allocate());
    for (const size_t prefix : {9u, 10u})
      EXPECT_EQ(tables.LongestCached(std::span(hashes).first(prefix)), prefix);
    if (kept == 0) continue;
    for (const size_t prefix : {4u, 5u})
      EXPECT_EQ(tables.LongestCached(std::span(hashes).first(prefix)), prefix);
    EXPECT_LT(tables.LongestCached(std::span(hashes).first(3)), 3u);
  }
}

// Nothing tells where prompts part.
TEST(BlockTables, SpareNothingIfNoTableKeepsEverything) {
  const auto hashes = Hashes(10);
  BlockPool pool(11, kBlock, true);
  BlockTables tables(pool, {{.window = 10}});
  BlockTables::Tables own(1);
  const BlockHash other = HashBlock({}, std::vector<int32_t>{7});
  const int32_t older = pool.Allocate().value();
  pool.Publish(older, other);
  pool.Release(older);
  tables.Grow(own, 40);
  tables.Publish(own, hashes, 0, 10);
  tables.DropBehind(own, 40);
  tables.SpareBehind(own, hashes, {});
  tables.Release(own);
  EXPECT_EQ(pool.Allocate(), older);
  EXPECT_TRUE(pool.Has(hashes[0]));
}

TEST(BlockTables, FitAsManyTokensAsBlocksAreLeft) {
  BlockPool pool(7, kBlock, false);
  BlockTables tables(pool, kFullAndWindow);
  BlockTables::Tables own(2);
  EXPECT_EQ(tables.Fitting(own, 0, 100), 12u);  // three blocks in each
  tables.Grow(own, 6);
  EXPECT_EQ(tables.Fitting(own, 6, 100), 6u);
  EXPECT_EQ(tables.Fitting(own, 6, 5), 5u);
}

// While a prompt is computed in steps its window takes no more than a step and what that sees.
TEST(BlockTables, LackForAPromptTheBlocksThatItHoldsAtOnce) {
  BlockPool pool(1000, kBlock, false);
  BlockTables tables(pool, kFullAndWindow);
  BlockTables::Tables own(2);
  EXPECT_EQ(tables.Lacking(own, 0, 400, 400), 200u);
  EXPECT_EQ(tables.Lacking(own, 0, 400, 8), 100u + MostBlocks(Reach{.window = 10}, 400, 8, kBlock));
  for (size_t computed = 0; computed < 400; computed += 8) {
    const size_t before = pool.used(), lacking = tables.Lacking(own, computed, 400, 8);
    tables.Grow(own, computed + 8);
    EXPECT_LE(pool.used() - before, lacking) << computed;
    tables.DropBehind(own, computed + 8);
  }
  EXPECT_EQ(tables.Lacking(own, 400, 400, 8), 0u);
}

}  // namespace
}  // namespace pinion
