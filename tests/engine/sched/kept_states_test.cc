// Prefix caching of models with recurrent layers: blocks are of use up to a kept state.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/sched/scheduler.h"
#include "timed_bench.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;

// 100 tokens: six full blocks of 16, and four tokens. The slice ends where the state is kept.
TEST(KeptStates, APromptBeginsBehindTheStateThatAnotherLeft) {
  Bench bench({.budget = 200, .states = 4});
  bench.Add(1, Prompt(100), 1);
  EXPECT_THAT(bench.Step(), ElementsAre(Share{1, 0, 96}));
  EXPECT_THAT(bench.Step(), ElementsAre(Share{1, 96, 4}));
  Sequence* again = bench.Add(2, Prompt(100), 1);
  const std::vector<Slice>& slices = bench.scheduler.Schedule();
  ASSERT_EQ(slices.size(), 1u);
  EXPECT_EQ(slices[0].first, 96u);
  EXPECT_EQ(slices[0].begins_from, 8) << "the first place behind those of 8 sequences";
  EXPECT_EQ(slices[0].keeps_in, -1);
  EXPECT_EQ(again->cached_prompt_tokens, 96u);
  bench.scheduler.Commit({7});
  EXPECT_EQ(bench.pool.used(), 0u);
}

TEST(KeptStates, ASliceNamesThePlaceThatItsStateGoesTo) {
  Bench bench({.budget = 200, .states = 4});
  bench.Add(1, Prompt(100), 1);
  const Slice first = bench.scheduler.Schedule()[0];
  EXPECT_EQ(first.keeps_in, 8);
  EXPECT_FALSE(first.samples);
  EXPECT_EQ(bench.states.kept(), 0u) << "nothing is there before the step";
  bench.scheduler.Commit({});
  EXPECT_EQ(bench.states.kept(), 1u);
  EXPECT_EQ(bench.scheduler.Schedule()[0].keeps_in, -1);
  bench.scheduler.Commit({7});
}

// Blocks without a state at their end say where prompts part: the second keeps a state there.
TEST(KeptStates, TheSecondOfThreePromptsKeepsTheStateAtWhichTheyPart) {
  Bench bench({.budget = 300, .states = 4});
  const auto with = [&](int32_t rest) { return Joined(Prompt(130), Prompt(80, rest)); };
  bench.Add(1, with(2000), 1);
  bench.Drain();
  bench.Add(2, with(3000), 1);
  EXPECT_THAT(bench.Step(), ElementsAre(Share{2, 0, 128}));
  EXPECT_THAT(bench.Step(), ElementsAre(Share{2, 128, 80}));
  EXPECT_THAT(bench.Step(), ElementsAre(Share{2, 208, 2}));
  Sequence* third = bench.Add(3, with(4000), 1);
  EXPECT_THAT(bench.Step(), ElementsAre(Share{3, 128, 80}));
  EXPECT_EQ(third->cached_prompt_tokens, 128u);
}

// The time left in the step, and the rest of the prompt, wait for the next.
TEST(KeptStates, AStepWithABoundEndsThereToo) {
  LinearTimes times;
  HandClock clock;
  BlockPool pool(100, 16, true);
  StatePool states(8, 2);
  Scheduler scheduler({200, 8, 1000, {0.1, 2, 8}}, pool, &times, clock, &states);
  ASSERT_TRUE(scheduler.Add(Bench::Make(1, Prompt(100), 1)));
  clock.now_ns += 1'000'000'000;  // it is overdue, so it gets the rest of a step's time, too
  for (const size_t rows : {96u, 4u}) {
    const std::vector<Slice>& slices = scheduler.Schedule();
    ASSERT_EQ(slices.size(), 1u);
    EXPECT_EQ(slices[0].count, rows);
    scheduler.Commit(std::vector<int32_t>(slices[0].samples ? 1 : 0, 7));
  }
  EXPECT_EQ(states.kept(), 1u);
}

// Blocks of a longer prefix may be there without a state behind them, and one behind a shorter.
TEST(KeptStates, TheLongestPrefixThatHasOneIsTaken) {
  Bench bench({.budget = 200, .states = 2});
  for (const auto& prompt : {Prompt(100), Prompt(180), Prompt(100), Prompt(100, 5000)}) {
    bench.Add(1, prompt, 1);  // the last one takes the place of the state behind 176 tokens
    bench.Drain();
  }
  bench.Add(2, Prompt(180), 1);
  EXPECT_THAT(bench.Step(), ElementsAre(Share{2, 96, 80}));
  EXPECT_THAT(bench.Step(), ElementsAre(Share{2, 176, 4}));
}

// 64 tokens are four blocks: the least that is worth a step of its own.
TEST(KeptStates, ShortPromptsKeepNone) {
  Bench bench({.budget = 200, .states = 4});
  bench.Add(1, Prompt(64), 1);
  EXPECT_THAT(bench.Step(), ElementsAre(Share{1, 0, 64}));
  bench.Add(2, Prompt(65, 3000), 1);
  EXPECT_THAT(bench.Step(), ElementsAre(Share{2, 0, 64}));
  EXPECT_THAT(bench.Step(), ElementsAre(Share{2, 64, 1}));
}

TEST(KeptStates, WithoutThemBlocksAreOfNoUse) {
  Bench bench({.budget = 200, .states = 1});
  bench.Add(1, Prompt(100), 1);
  bench.Drain();
  bench.Add(2, Prompt(100, 5000), 1);  // takes the only place
  bench.Drain();
  bench.Add(3, Prompt(100), 1);
  EXPECT_THAT(bench.Step(), ElementsAre(Share{3, 0, 96}));
}

TEST(KeptStates, DroppedOnesAreComputedAgain) {
  Bench bench({.budget = 200, .states = 2});
  bench.Add(1, Prompt(100), 1);
  bench.Drain();
  bench.states.Drop();
  bench.Add(2, Prompt(100), 1);
  EXPECT_THAT(bench.Step(), ElementsAre(Share{2, 0, 96}));
}

// The second would only make room for what is kept already.
TEST(KeptStates, TwoOfTheSamePromptKeepOne) {
  Bench bench({.budget = 300, .states = 4});
  bench.Add(1, Prompt(100), 1);
  bench.Add(2, Prompt(100), 1);
  const std::vector<Slice>& slices = bench.scheduler.Schedule();
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[0].keeps_in, 8);
  EXPECT_EQ(slices[1].keeps_in, -1);
  bench.scheduler.Commit({});
  EXPECT_EQ(bench.states.kept(), 1u);
}

// Everything that is held is given back, whatever ends a sequence.
TEST(KeptStates, AnAbortedSequenceHoldsNone) {
  Bench bench({.budget = 10, .states = 1});
  bench.Add(1, Prompt(100), 1);
  bench.Drain();
  bench.Add(2, Prompt(100), 1);
  bench.scheduler.Schedule();
  bench.scheduler.Commit({7});
  bench.Add(3, Prompt(100, 4000), 1);
  bench.Step();
  bench.scheduler.Abort(3);
  const auto place = bench.states.Reserve();
  EXPECT_TRUE(place) << "no sequence uses it any more";
}

}  // namespace
}  // namespace pinion
