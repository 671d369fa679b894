#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/sched/scheduler.h"
#include "scheduler_bench.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;

TEST(Scheduler, ReusesAFinishedSequencesPrefix) {
  Bench bench({.budget = 100});
  bench.Add(1, Prompt(40), 1);
  bench.Step();
  Sequence* second = bench.Add(2, Prompt(40), 1);
  EXPECT_THAT(bench.Step(), ElementsAre(Share{2, 32, 8}));
  EXPECT_EQ(second->cached_prompt_tokens, 32u);
  EXPECT_EQ(bench.pool.stats().prefix_query_tokens, 80u);
  EXPECT_EQ(bench.pool.stats().prefix_hit_tokens, 32u);
}

TEST(Scheduler, SharesPrefixBlocksOfARunningSequence) {
  Bench bench({.budget = 100});
  Sequence* first = bench.Add(1, Prompt(40));
  bench.Step();
  Sequence* second = bench.Add(2, Prompt(35));
  bench.Step();
  EXPECT_EQ(second->cached_prompt_tokens, 32u);
  EXPECT_EQ(second->tables[0].blocks[0], first->tables[0].blocks[0]);
  EXPECT_EQ(second->tables[0].blocks[1], first->tables[0].blocks[1]);
  EXPECT_NE(second->tables[0].blocks[2], first->tables[0].blocks[2]);
  EXPECT_EQ(bench.pool.used(), 4u);
}

TEST(Scheduler, ComputesAtLeastOneTokenOfAFullyCachedPrompt) {
  Bench bench({});
  bench.Add(1, Prompt(32), 1);
  bench.Step();
  bench.Add(2, Prompt(32), 1);
  EXPECT_THAT(bench.Step(), ElementsAre(Share{2, 16, 16}));
}

TEST(Scheduler, CachesOutputTokensForTheNextTurn) {
  Bench bench({});
  bench.Add(1, Prompt(10), 30);
  bench.Drain();
  std::vector<int32_t> next_turn = bench.finished[0]->tokens;  // 40, of which 39 were computed
  next_turn.push_back(11);
  bench.Add(2, next_turn, 1);
  EXPECT_THAT(bench.Step(), ElementsAre(Share{2, 32, 9}));
}

TEST(Scheduler, ReusesNoBlockAfterADifferentPrefix) {
  Bench bench({});
  bench.Add(1, Prompt(40), 1);
  bench.Step();
  std::vector<int32_t> other = Prompt(40);
  other[0] = 5;  // only the first block differs; the second's hash must differ with it
  bench.Add(2, other, 1);
  EXPECT_THAT(bench.Step(), ElementsAre(Share{2, 0, 40}));
}

TEST(Scheduler, ReusesNoBlockWithoutPrefixCaching) {
  Bench bench({.caching = false});
  bench.Add(1, Prompt(40), 1);
  bench.Step();
  bench.Add(2, Prompt(40), 1);
  EXPECT_THAT(bench.Step(), ElementsAre(Share{2, 0, 40}));
  EXPECT_EQ(bench.pool.stats().prefix_query_tokens, 0u);
}

}  // namespace
}  // namespace pinion
