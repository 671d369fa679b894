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

}  // namespace
}  // namespace pinion
