#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/sched/scheduler.h"
#include "scheduler_bench.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;

// Two sequences that want 4 blocks each at their end, and 5 blocks for both.
TEST(Scheduler, PreemptsTheYoungestWhenBlocksRunOut) {
  Bench bench({.blocks = 5, .budget = 100, .caching = false});
  Sequence* first = bench.Add(1, Prompt(15), 40);
  Sequence* second = bench.Add(2, Prompt(15, 2000), 40);
  bench.StepUntilPreemption();
  EXPECT_EQ(first->preemptions, 0);
  EXPECT_EQ(second->preemptions, 1);
  EXPECT_EQ(second->computed, 0u);
  EXPECT_EQ(second->tables[0].held(), 0u);
  EXPECT_EQ(bench.scheduler.stats().waiting, 1u);
  bench.Drain();
  ASSERT_EQ(bench.finished.size(), 2u);
  EXPECT_EQ(bench.finished[0]->id, 1u);
  EXPECT_EQ(bench.finished[1]->output_tokens(), 40u);
  EXPECT_EQ(bench.pool.used(), 0u);
}

// The last in order, not in time: the second came later, but with a better priority.
TEST(Scheduler, PreemptsTheWorstPriority) {
  Bench bench({.blocks = 5, .budget = 100, .caching = false});
  auto patient = Bench::Make(1, Prompt(15), 40);
  patient->priority = 1;
  Sequence* first = patient.get();
  ASSERT_TRUE(bench.scheduler.Add(std::move(patient)));
  Sequence* second = bench.Add(2, Prompt(15, 2000), 40);
  bench.StepUntilPreemption();
  EXPECT_EQ(first->preemptions, 1);
  EXPECT_EQ(second->preemptions, 0);
  bench.Drain();
  EXPECT_EQ(bench.finished.at(0)->id, 2u);
}

TEST(Scheduler, ResumesAfterPreemptionWithTheSameTokens) {
  Bench bench({.blocks = 5, .budget = 100, .caching = false});
  bench.Add(1, Prompt(15), 40);
  Sequence* second = bench.Add(2, Prompt(15, 2000), 40);
  bench.StepUntilPreemption();
  const std::vector<int32_t> before = second->tokens;
  const int64_t scheduled_ns = second->scheduled_ns;
  EXPECT_GT(before.size(), 15u);
  std::vector<Share> shares;
  for (int step = 0; step < 1000 && second->computed == 0; ++step) shares = bench.Step();
  EXPECT_THAT(shares, ElementsAre(Share{2, 0, before.size()}))
      << "prompt and output are computed again in one prefill";
  const std::vector<int32_t> after(second->tokens.begin(),
                                   second->tokens.begin() + static_cast<ptrdiff_t>(before.size()));
  EXPECT_EQ(after, before);
  EXPECT_EQ(second->tokens.size(), before.size() + 1);
  EXPECT_EQ(second->scheduled_ns, scheduled_ns) << "it has left the queue once";
}

TEST(Scheduler, FindsItsOwnBlocksAgainAfterPreemption) {
  Bench bench({.blocks = 6, .budget = 100});
  Sequence* first = bench.Add(1, Prompt(30), 30);
  Sequence* second = bench.Add(2, Prompt(30, 2000), 30);
  bench.StepUntilPreemption();
  ASSERT_EQ(second->preemptions, 1);
  EXPECT_TRUE(bench.scheduler.Abort(first->id));
  const size_t tokens = second->tokens.size();
  const std::vector<Share> shares = bench.Step();
  ASSERT_EQ(shares.size(), 1u);
  EXPECT_GE(shares[0].first, 16u) << "its published blocks were still cached";
  EXPECT_EQ(shares[0].first + shares[0].count, tokens);
  EXPECT_EQ(second->cached_prompt_tokens, 0u) << "its own blocks do not count as a prefix hit";
  EXPECT_EQ(bench.pool.stats().prefix_hit_tokens, 0u);
}

TEST(Scheduler, PausesTheYoungestInsteadOfPreemptingIt) {
  // 3 blocks: A grows into its second, B wants a second too and pauses until A ends.
  Bench bench({.blocks = 3, .budget = 100, .caching = false});
  bench.Add(1, Prompt(15), 10);
  Sequence* second = bench.Add(2, Prompt(15, 2000), 10);
  bench.Drain();
  EXPECT_EQ(bench.scheduler.stats().preemptions, 0u);
  EXPECT_EQ(second, bench.finished.at(1).get());
}

TEST(Scheduler, KeepsABlockFreeForEveryRunningSequence) {
  Bench bench({.blocks = 4, .budget = 100, .caching = false});
  bench.Add(1, Prompt(16), 30);  // will need 3 blocks
  bench.Step();
  bench.Add(2, Prompt(32, 2000), 2);  // would take the last 2, once the first has its second one
  EXPECT_THAT(bench.Step(), ElementsAre(Share{1, 16, 1}));
  bench.Drain();
  EXPECT_EQ(bench.scheduler.stats().preemptions, 0u);
  EXPECT_EQ(bench.finished.size(), 2u);
}

TEST(Scheduler, KeepsTheBlocksFreeThatAJumpMayTake) {
  // A jump of 32 tokens takes two blocks; without one the first sequence needs its next block in
  // 15 steps, and by then the second has ended.
  for (const size_t most_jumped : {0, 32}) {
    Bench bench({.blocks = 4, .budget = 100, .caching = false});
    bench.Add(1, Prompt(17), 45)->most_jumped = most_jumped;
    bench.Step();
    bench.Add(2, Prompt(10, 2000), 2);
    const bool is_admitted = bench.Step().size() == 2;
    EXPECT_EQ(is_admitted, most_jumped == 0);
    bench.Drain();
    EXPECT_EQ(bench.finished.size(), 2u);
  }
}

TEST(Scheduler, KeepsNoMoreBlocksFreeForAJumpThanTheAnswerTakes) {
  Bench bench({.blocks = 3, .budget = 100, .caching = false});
  bench.Add(1, Prompt(17), 10)->most_jumped = 32;
  bench.Step();
  bench.Add(2, Prompt(10, 2000), 2);
  EXPECT_THAT(bench.Step(), ElementsAre(Share{1, 17, 1}, Share{2, 0, 10}));
}

}  // namespace
}  // namespace pinion
