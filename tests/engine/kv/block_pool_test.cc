#include "engine/kv/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "engine/kv/siphash.h"

namespace pinion {
namespace {

std::vector<int32_t> Tokens(int32_t first, size_t count) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

BlockHash HashOf(int32_t first) { return HashBlock({}, Tokens(first, 16)); }

// Takes a block, makes it addressable and lets it go.
int32_t Cache(BlockPool& pool, const BlockHash& hash) {
  const int32_t block = pool.Allocate().value();
  pool.Publish(block, hash);
  pool.Release(block);
  return block;
}

// Vectors by `openssl mac -macopt hexkey:000102..0f -macopt size:16 SIPHASH` over bytes 0, 1, 2,
// ...
TEST(SipHash, MatchesTheReferencesVectors) {
  const BlockHash key{0x0706050403020100, 0x0f0e0d0c0b0a0908};
  const std::array<uint64_t, 3> words = {0x0706050403020100, 0x0f0e0d0c0b0a0908,
                                         0x1716151413121110};
  const std::span all(words);
  // Output bytes a3817f04ba25a8e6 6df67214c7550293 read as two little-endian words, and so on.
  EXPECT_EQ(SipHash128(key, all.first(0)), (BlockHash{0x930255c71472f66d, 0xe6a825ba047f81a3}));
  EXPECT_EQ(SipHash128(key, all.first(1)), (BlockHash{0xb49714f364e2830f, 0x61f55862baa9623b}));
  EXPECT_EQ(SipHash128(key, all.first(2)), (BlockHash{0x77052385bf1533fd, 0xbb54b067caa4e26e}));
  EXPECT_EQ(SipHash128(key, all), (BlockHash{0xad32618a178a2a88, 0xd850bd78ae79b42d}));
}

TEST(HashBlock, TellsALargeTokenIdFromTwoSmallOnes) {
  for (const int shift : {8, 16, 24}) {
    const std::vector<int32_t> large = {1 << shift, 0}, small = {0, 1};
    EXPECT_NE(HashBlock({}, large), HashBlock({}, small)) << "shift " << shift;
  }
}

TEST(HashBlock, DependsOnTokensOrderLengthAndParent) {
  const std::vector<int32_t> tokens = Tokens(100, 16);
  std::vector<int32_t> swapped = tokens, negative = tokens;
  std::swap(swapped[0], swapped[1]);
  negative[0] = -1;
  const BlockHash base = HashBlock({}, tokens);
  EXPECT_EQ(base, HashBlock({}, tokens));
  EXPECT_NE(base, HashBlock({}, swapped));
  EXPECT_NE(base, HashBlock({}, negative));
  EXPECT_NE(base, HashBlock(base, tokens));
  EXPECT_NE(base, HashBlock({0, 1}, tokens));
  EXPECT_NE(base, HashBlock({1, 0}, tokens));
  // A missing last token is not a token 0.
  EXPECT_NE(HashBlock({}, std::vector<int32_t>{5, 0}), HashBlock({}, std::vector<int32_t>{5}));
}

TEST(HashBlock, SpreadsItsBitsOverNeighbouringBlocks) {
  std::set<uint64_t> high, low, low_bits;
  for (int32_t i = 0; i < 10000; ++i) {
    const BlockHash hash = HashBlock({}, std::vector<int32_t>{i, 0, 0, 0});
    high.insert(hash.high);
    low.insert(hash.low);
    low_bits.insert(hash.low % 4096);
  }
  EXPECT_EQ(high.size(), 10000u);
  EXPECT_EQ(low.size(), 10000u);
  EXPECT_GT(low_bits.size(), 3600u);  // 4096 (1 - e^-2.44) = 3739 expected, deviation about 15
}

TEST(BlockPool, AllocatesEveryBlockOnceAndThenNone) {
  BlockPool pool(5, 16, true);
  std::set<int32_t> given;
  for (int i = 0; i < 5; ++i) given.insert(pool.Allocate().value());
  EXPECT_EQ(given, (std::set<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(pool.Allocate(), std::nullopt);
  EXPECT_EQ(pool.used(), 5u);
  for (const int32_t block : given) pool.Release(block);
  EXPECT_EQ(pool.available(), 5u);
}

TEST(BlockPool, KeepsABlockUntilItsLastReferenceGoes) {
  BlockPool pool(1, 16, true);
  const int32_t block = Cache(pool, HashOf(1));
  pool.Reuse(HashOf(1));
  pool.Reuse(HashOf(1));
  pool.Release(block);
  EXPECT_EQ(pool.available(), 0u);
  pool.Release(block);
  EXPECT_EQ(pool.available(), 1u);
}

TEST(BlockPool, ReusesACachedBlockByItsHash) {
  BlockPool pool(4, 16, true);
  const int32_t block = Cache(pool, HashOf(1));
  EXPECT_EQ(pool.available(), 4u) << "a cached block can still be given away";
  EXPECT_EQ(pool.Reuse(HashOf(1)), block);
  EXPECT_EQ(pool.used(), 1u);
  EXPECT_EQ(pool.Reuse(HashOf(2)), std::nullopt);
  EXPECT_EQ(pool.stats().evictions, 0u);
}

TEST(BlockPool, SharesABlockThatIsStillUsed) {
  BlockPool pool(2, 16, true);
  const int32_t block = pool.Allocate().value();
  pool.Publish(block, HashOf(1));
  EXPECT_EQ(pool.Reuse(HashOf(1)), block);
  EXPECT_EQ(pool.used(), 1u);
  pool.Release(block);
  EXPECT_EQ(pool.used(), 1u) << "the second sequence still holds it";
  pool.Release(block);
  EXPECT_EQ(pool.used(), 0u);
}

TEST(BlockPool, EvictsLeastRecentlyUsed) {
  BlockPool pool(3, 16, true);
  const int32_t a = Cache(pool, HashOf(1));
  const int32_t x = pool.Allocate().value(), y = pool.Allocate().value();
  pool.Publish(x, HashOf(2));
  pool.Publish(y, HashOf(3));
  pool.Release(x);
  pool.Release(y);
  pool.Release(pool.Reuse(HashOf(1)).value());  // touches the oldest: now 2 is
  EXPECT_EQ(pool.Allocate(), x);
  EXPECT_EQ(pool.Allocate(), y);
  EXPECT_EQ(pool.Reuse(HashOf(2)), std::nullopt);
  EXPECT_EQ(pool.Reuse(HashOf(3)), std::nullopt);
  EXPECT_EQ(pool.Reuse(HashOf(1)), a);
  EXPECT_EQ(pool.stats().evictions, 2u);
}

TEST(BlockPool, AWithdrawnNameIsNobodys) {
  BlockPool pool(2, 16, true);
  const int32_t block = pool.Allocate().value();
  pool.Withdraw(block);  // it has none
  pool.Publish(block, HashOf(1));
  pool.Withdraw(block);
  EXPECT_FALSE(pool.Has(HashOf(1)));
  pool.Publish(block, HashOf(2));
  pool.Release(block);
  EXPECT_EQ(pool.Reuse(HashOf(2)), block);
  pool.Withdraw(block);
  pool.Release(block);
  EXPECT_EQ(pool.available(), 2u);
  EXPECT_FALSE(pool.Reuse(HashOf(2)));
  Cache(pool, HashOf(1));
  Cache(pool, HashOf(3));
  EXPECT_EQ(pool.stats().evictions, 0u) << "both were free";
}

TEST(BlockPool, EvictsSpareBlocksFirst) {
  BlockPool pool(4, 16, true);
  std::vector<int32_t> blocks;
  for (uint64_t i = 1; i <= 4; ++i) blocks.push_back(pool.Allocate().value());
  for (uint64_t i = 1; i <= 4; ++i) pool.Publish(blocks[i - 1], HashOf(i));
  pool.Spare(HashOf(4));  // is used, and stays as it is
  for (const int32_t block : blocks) pool.Release(block);
  pool.Spare(HashOf(3));
  pool.Spare(HashOf(3));
  pool.Spare(HashOf(5));
  EXPECT_EQ(pool.available(), 4u);
  EXPECT_EQ(pool.Allocate(), blocks[2]);
  EXPECT_EQ(pool.Allocate(), blocks[0]) << "then the least recently used";
  EXPECT_TRUE(pool.Has(HashOf(4)));
}

TEST(BlockPool, ABlockThatIsReusedIsSpareNoMore) {
  BlockPool pool(3, 16, true);
  const int32_t a = Cache(pool, HashOf(1));
  pool.Spare(HashOf(1));
  EXPECT_EQ(pool.Reuse(HashOf(1)), a);
  EXPECT_EQ(pool.available(), 2u);
  const int32_t x = pool.Allocate().value(), y = pool.Allocate().value();
  const int32_t b = std::max(x, y);  // no neighbour of a, with which it would go
  pool.Publish(b, HashOf(2));
  pool.Release(b);
  pool.Release(a);
  EXPECT_EQ(pool.Allocate(), b) << "the other is older";
  pool.Spare(HashOf(1));
  pool.DropCached();
  EXPECT_EQ(pool.available(), 1u);
  EXPECT_FALSE(pool.Has(HashOf(1)));
}

// Allocates `count` blocks, each after the one before, the first after blocks.back().
void Grow(BlockPool& pool, std::vector<int32_t>& blocks, size_t count) {
  for (size_t i = 0; i < count; ++i)
    blocks.push_back(
        pool.Allocate(blocks.empty() ? std::nullopt : std::optional(blocks.back())).value());
}

// Pairs of blocks that do not follow one another.
size_t Breaks(const std::vector<int32_t>& blocks) {
  size_t breaks = 0;
  for (size_t i = 1; i < blocks.size(); ++i) breaks += blocks[i] != blocks[i - 1] + 1;
  return breaks;
}

// Sequences that decode together take blocks by turns.
TEST(BlockPool, SequencesThatGrowTogetherGetRunsOfTheirOwn) {
  BlockPool pool(1000, 16, true);
  std::vector<std::vector<int32_t>> sequences(8);
  for (auto& blocks : sequences) Grow(pool, blocks, 20);
  for (int round = 0; round < 64; ++round)
    for (auto& blocks : sequences) Grow(pool, blocks, 1);
  std::set<int32_t> all;
  for (const auto& blocks : sequences) {
    EXPECT_LE(Breaks(blocks), 64u / 16);
    all.insert(blocks.begin(), blocks.end());
  }
  EXPECT_EQ(all.size(), 8u * 84) << "a block was given twice";
}

TEST(BlockPool, UsesTheRoomLeftToGrowBeforeItRefuses) {
  BlockPool pool(50, 16, true);
  std::vector<int32_t> first, second;
  Grow(pool, first, 4);
  Grow(pool, second, 46);
  EXPECT_EQ(pool.available(), 0u);
  EXPECT_EQ(pool.Allocate(first.back()), std::nullopt);
}

// The next sequence gets neighbours in ascending order, whether or not the blocks were cached.
TEST(BlockPool, GivesTheBlocksOfAnEarlierSequenceInTheirOrder) {
  for (const bool caching : {false, true}) {
    BlockPool pool(12, 16, caching);
    for (int32_t round = 0; round < 3; ++round) {
      std::vector<int32_t> blocks;
      for (int32_t i = 0; i < 12; ++i) {
        Grow(pool, blocks, 1);
        pool.Publish(blocks.back(), HashOf(1 + round * 12 + i));
        EXPECT_EQ(blocks.back(), i) << "round " << round << ", caching " << caching;
      }
      for (size_t i = blocks.size(); i > 0; --i) pool.Release(blocks[i - 1]);
    }
    EXPECT_EQ(pool.stats().evictions, caching ? 24u : 0u);
  }
}

TEST(BlockPool, TakesFreeBlocksBeforeItEvicts) {
  BlockPool pool(2, 16, true);
  const int32_t cached = Cache(pool, HashOf(1));
  EXPECT_NE(pool.Allocate(), cached);
  EXPECT_EQ(pool.stats().evictions, 0u);
}

TEST(BlockPool, PublishesAHashOnceOnly) {
  BlockPool pool(2, 16, true);
  const int32_t first = pool.Allocate().value(), second = pool.Allocate().value();
  pool.Publish(first, HashOf(1));
  pool.Publish(second, HashOf(1));
  pool.Publish(first, HashOf(1));
  pool.Release(second);
  EXPECT_EQ(pool.Allocate(), second) << "the second copy is free, not cached";
  EXPECT_EQ(pool.Reuse(HashOf(1)), first);
}

TEST(BlockPool, CachesNothingWithoutPrefixCaching) {
  BlockPool pool(2, 16, false);
  Cache(pool, HashOf(1));
  EXPECT_EQ(pool.Reuse(HashOf(1)), std::nullopt);
  EXPECT_EQ(pool.available(), 2u);
}

TEST(BlockPool, DropCachedForgetsCachedAndUsedContent) {
  BlockPool pool(2, 16, true);
  Cache(pool, HashOf(1));
  const int32_t used = pool.Allocate().value();
  pool.Publish(used, HashOf(2));
  pool.DropCached();
  EXPECT_EQ(pool.Reuse(HashOf(1)), std::nullopt);
  EXPECT_EQ(pool.Reuse(HashOf(2)), std::nullopt);
  pool.Release(used);
  EXPECT_EQ(pool.available(), 2u);
  EXPECT_TRUE(pool.Allocate() && pool.Allocate());
  EXPECT_EQ(pool.stats().evictions, 0u) << "dropped content is not evicted again";
}

// A pool that forgets fast to be right: a list in order of use, searched linearly.
class ModelPool {
 public:
  explicit ModelPool(size_t blocks) : blocks_(blocks) {}
  size_t used() const { return references_.size(); }
  bool full() const { return used() == blocks_; }
  bool reusable(int key) const { return key_of_block_.contains(key); }

  // The oldest block, and those that lie right before it as long as they are next in age.
  std::vector<int32_t> Evict() {
    std::vector<int32_t> evicted;
    while (!idle_keys_.empty()) {
      const int32_t block = key_of_block_.at(idle_keys_.front());
      if (!evicted.empty() && block != evicted.back() - 1) break;
      evicted.push_back(block);
      key_of_block_.erase(idle_keys_.front());
      idle_keys_.pop_front();
    }
    return evicted;
  }

  std::map<int32_t, int> references_;
  std::map<int, int32_t> key_of_block_;  // key -> block
  std::deque<int> idle_keys_;            // cached, least recently used first

 private:
  size_t blocks_;
};

TEST(BlockPool, AgreesWithASimpleModelOverRandomOperations) {
  constexpr size_t kBlocks = 12;
  std::mt19937 rng(20261120);
  BlockPool pool(kBlocks, 16, true);
  ModelPool model(kBlocks);
  std::map<int32_t, int> key_of;
  for (int step = 0; step < 50000; ++step) {
    const int key = static_cast<int>(rng() % 30);
    switch (rng() % 3) {
      case 0: {
        const bool evicts = model.used() + model.idle_keys_.size() == kBlocks && !model.full();
        const auto block = pool.Allocate();
        ASSERT_EQ(block.has_value(), !model.full());
        if (!block) break;
        ASSERT_FALSE(model.references_.contains(*block)) << "given twice";
        if (evicts) {
          const std::vector<int32_t> evicted = model.Evict();
          for (const int32_t gone : evicted) key_of.erase(gone);
          ASSERT_EQ(std::count(evicted.begin(), evicted.end(), *block), 1);
        }
        ASSERT_FALSE(key_of.contains(*block)) << "a cached block was given before a free one";
        model.references_[*block] = 1;
        pool.Publish(*block, HashOf(key));
        if (!model.reusable(key)) {
          model.key_of_block_[key] = *block;
          key_of[*block] = key;
        }
        break;
      }
      case 1: {
        const auto block = pool.Reuse(HashOf(key));
        ASSERT_EQ(block.has_value(), model.reusable(key));
        if (!block) break;
        ASSERT_EQ(*block, model.key_of_block_.at(key));
        ++model.references_[*block];
        std::erase(model.idle_keys_, key);
        break;
      }
      default: {
        if (model.references_.empty()) break;
        auto place = model.references_.begin();
        std::advance(place, rng() % model.references_.size());
        pool.Release(place->first);
        if (--place->second > 0) break;
        if (key_of.contains(place->first)) model.idle_keys_.push_back(key_of.at(place->first));
        model.references_.erase(place);
      }
    }
    ASSERT_EQ(pool.used(), model.used());
    ASSERT_EQ(pool.available(), kBlocks - model.used());
  }
  EXPECT_GT(pool.stats().evictions, 1000u);
}

// Blocks that are freed and given again were reached before.
TEST(BlockPool, KnowsHowFarItHasGivenOutBlocks) {
  BlockPool pool(100, 16, true);
  EXPECT_EQ(pool.reached(), 0u);
  const int32_t first = pool.Allocate().value(), second = pool.Allocate().value();
  EXPECT_GT(second, first);
  EXPECT_EQ(pool.reached(), static_cast<size_t>(second) + 1);
  pool.Release(second);
  pool.Release(first);
  EXPECT_EQ(pool.Allocate(), first);
  EXPECT_EQ(pool.reached(), static_cast<size_t>(second) + 1);
}

}  // namespace
}  // namespace pinion
