#include "engine/weights/shard.h"

#include <gtest/gtest.h>

#include "kernels/kernels.h"

namespace pinion {
namespace {

DecoderSpec Spec(int heads, int kv_heads, int intermediate, int vocabulary) {
  DecoderSpec spec;
  spec.heads = heads;
  spec.kv_heads = kv_heads;
  spec.head_dim = 16;
  spec.intermediate = intermediate;
  spec.vocabulary = vocabulary;
  return spec;
}

struct Case {
  int heads, kv_heads, intermediate, vocabulary, ranks;
};

class ShardTest : public ::testing::TestWithParam<Case> {};

TEST_P(ShardTest, CoversEverythingOnce) {
  const Case& c = GetParam();
  size_t head = 0, column = 0, token = 0;
  for (int rank = 0; rank < c.ranks; ++rank) {
    const Shard shard =
        MakeShard(Spec(c.heads, c.kv_heads, c.intermediate, c.vocabulary), c.ranks, rank);
    EXPECT_EQ(shard.q_heads.begin, head);
    EXPECT_EQ(shard.intermediate.begin, column);
    EXPECT_EQ(shard.vocabulary.begin, token);
    head = shard.q_heads.end, column = shard.intermediate.end, token = shard.vocabulary.end;
  }
  EXPECT_EQ(head, static_cast<size_t>(c.heads));
  EXPECT_EQ(column, static_cast<size_t>(c.intermediate));
  EXPECT_EQ(token, static_cast<size_t>(c.vocabulary));
}

TEST_P(ShardTest, GivesEveryQueryHeadItsKvHead) {
  const Case& c = GetParam();
  const size_t group = static_cast<size_t>(c.heads / c.kv_heads);
  for (int rank = 0; rank < c.ranks; ++rank) {
    const Shard shard =
        MakeShard(Spec(c.heads, c.kv_heads, c.intermediate, c.vocabulary), c.ranks, rank);
    size_t next = 0;
    for (const HeadGroup& heads : shard.groups) {
      EXPECT_EQ(heads.first_q_head, next);
      EXPECT_LE(heads.q_heads, kernels::kAttentionRows);
      ASSERT_LT(heads.kv_head, shard.kv_heads.size());
      for (size_t i = 0; i < heads.q_heads; ++i)
        EXPECT_EQ((shard.q_heads.begin + heads.first_q_head + i) / group,
                  shard.kv_heads.begin + heads.kv_head);
      next += heads.q_heads;
    }
    EXPECT_EQ(next, shard.q_heads.size());
  }
}

TEST_P(ShardTest, CutsTheVocabularyAndTheMlpAtBlocks) {
  const Case& c = GetParam();
  for (int rank = 0; rank < c.ranks; ++rank) {
    const Shard shard =
        MakeShard(Spec(c.heads, c.kv_heads, c.intermediate, c.vocabulary), c.ranks, rank);
    EXPECT_EQ(shard.vocabulary.begin % kernels::kBlockN == 0 ||
                  shard.vocabulary.begin == static_cast<size_t>(c.vocabulary),
              true);
    EXPECT_EQ(shard.intermediate.begin % kernels::kBlockN == 0 ||
                  shard.intermediate.begin == static_cast<size_t>(c.intermediate),
              true);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, ShardTest,
                         ::testing::Values(Case{32, 8, 8192, 128256, 1},
                                           Case{32, 8, 8192, 128256, 2},
                                           Case{32, 8, 8192, 128256, 3}, Case{7, 1, 152, 576, 2},
                                           Case{7, 7, 152, 576, 3}, Case{3, 3, 256, 736, 2},
                                           Case{5, 5, 176, 577, 4}, Case{2, 2, 256, 576, 4},
                                           Case{4, 2, 176, 576, 4}, Case{14, 2, 4864, 151936, 4},
                                           Case{71, 1, 64, 64, 1}, Case{130, 1, 64, 65, 2}));

TEST(ShardReplication, StoresAKvHeadTwiceOnlyIfItMust) {
  const auto kv_heads = [](int heads, int kv, int ranks) {
    size_t total = 0;
    for (int rank = 0; rank < ranks; ++rank)
      total += MakeShard(Spec(heads, kv, 64, 64), ranks, rank).kv_heads.size();
    return total;
  };
  EXPECT_EQ(kv_heads(32, 8, 3), 8u);
  EXPECT_EQ(kv_heads(32, 8, 8), 8u);
  EXPECT_EQ(kv_heads(7, 1, 2), 2u);  // both ranks need the only one
  EXPECT_EQ(kv_heads(2, 2, 4), 2u);  // two ranks hold none
}

// Sixteen cores beside eight, and a quota of one and a half beside them.
TEST(RankShares, AreInProportionToTheirParts) {
  const RankShares shares(std::vector<uint32_t>{1600, 800, 150});
  const DecoderSpec spec = Spec(34, 17, 51 * 64, 510 * 64);
  const size_t heads[] = {22, 10, 2}, blocks[] = {32, 16, 3}, tokens[] = {320, 160, 30};
  for (int rank = 0; rank < shares.ranks(); ++rank) {
    const auto i = static_cast<size_t>(rank);
    const Shard shard = MakeShard(spec, shares, rank);
    EXPECT_EQ(shard.q_heads.size(), heads[i]);
    EXPECT_EQ(shard.intermediate.size(), blocks[i] * kernels::kBlockN);
    EXPECT_EQ(shard.vocabulary.size(), tokens[i] * kernels::kBlockN);
  }
}

// Of 10 items, in parts that do not divide them: each rank begins where the one before ends.
TEST(RankShares, AreAllItemsOnce) {
  for (const auto& parts :
       {std::vector<uint32_t>{3, 1}, {1, 3}, {1, 1000}, {1000, 1}, {7, 5, 3, 2}, {1, 1, 1}})
    for (const size_t items : {0, 1, 2, 10}) {
      const RankShares shares(parts);
      size_t next = 0;
      for (int rank = 0; rank < shares.ranks(); ++rank) {
        const Range own = shares.Of(items, rank);
        EXPECT_EQ(own.begin, next);
        next = own.end;
      }
      EXPECT_EQ(next, items);
    }
}

// Rounded down, the process with less would set a slower pace than with equal parts: 3 heads for 15
// CPUs and 5 for 16. A part that is less than half an item is none.
TEST(RankShares, AreRoundedToTheNearestItem) {
  const auto sizes = [](const std::vector<uint32_t>& parts, size_t items) {
    std::vector<size_t> of_rank;
    for (size_t rank = 0; rank < parts.size(); ++rank)
      of_rank.push_back(RankShares(parts).Of(items, static_cast<int>(rank)).size());
    return of_rank;
  };
  EXPECT_EQ(sizes({15, 16}, 8), (std::vector<size_t>{4, 4}));
  EXPECT_EQ(sizes({16, 15}, 8), (std::vector<size_t>{4, 4}));
  EXPECT_EQ(sizes({3, 4}, 4), (std::vector<size_t>{2, 2}));
  EXPECT_EQ(sizes({32, 1}, 8), (std::vector<size_t>{8, 0}));
  EXPECT_EQ(sizes({1, 32}, 8), (std::vector<size_t>{0, 8}));
  EXPECT_EQ(sizes({1, 1}, 3), (std::vector<size_t>{1, 2})) << "halves down";
}

TEST(RankShares, AreEqualUnlessToldOtherwise) {
  EXPECT_EQ(RankShares(3), RankShares(std::vector<uint32_t>{1, 1, 1}));
  EXPECT_EQ(RankShares(3).Of(9, 1).begin, 3u);
  EXPECT_EQ(RankShares(std::vector<uint32_t>{50, 50}).Of(9, 1).begin, RankShares(2).Of(9, 1).begin);
}

}  // namespace
}  // namespace pinion
