#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/sched/scheduler.h"
#include "scheduler_bench.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;

TEST(Scheduler, ScoresEveryPositionAndSamplesNone) {
  Bench bench({.budget = 30, .length = 40});
  bench.AddScore(1, Prompt(40));  // as long as the model allows: nothing follows
  EXPECT_FALSE(bench.scheduler.Schedule()[0].samples);
  bench.scheduler.Commit({});
  EXPECT_FALSE(bench.scheduler.Schedule()[0].samples);
  const auto finished = bench.scheduler.Commit({});
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0]->finish, FinishReason::kLength);
  EXPECT_EQ(finished[0]->scored, 40u);
  EXPECT_EQ(finished[0]->output_tokens(), 0u);
}

TEST(Scheduler, ScoresWithoutThePrefixCacheButFeedsIt) {
  Bench bench({.budget = 100});
  bench.AddScore(1, Prompt(40));
  bench.Step();
  bench.AddScore(2, Prompt(40));
  EXPECT_THAT(bench.Step(), ElementsAre(Share{2, 0, 40}));
  bench.Add(3, Prompt(40), 1);
  EXPECT_THAT(bench.Step(), ElementsAre(Share{3, 32, 8}));
}

TEST(Scheduler, RemembersScoredPositionsAcrossAPreemption) {
  Bench bench({.blocks = 6, .budget = 2, .caching = false});
  Sequence* first = bench.Add(1, Prompt(15), 40);
  Sequence* score = bench.AddScore(2, Prompt(60, 2000));
  bench.StepUntilPreemption();
  EXPECT_EQ(score->preemptions, 1);
  EXPECT_EQ(score->computed, 0u);
  EXPECT_GT(score->scored, 2u) << "these positions' logits are out: not a second time";
  const size_t scored = score->scored;
  EXPECT_TRUE(bench.scheduler.Abort(first->id));
  bench.Step();
  EXPECT_EQ(score->computed, 2u);
  EXPECT_EQ(score->scored, scored);
  bench.Drain();
  EXPECT_EQ(bench.finished.at(0)->scored, 60u);
}

TEST(Scheduler, ComputesAWholeTextInOneStepThatHasRoomForIt) {
  Bench bench({.budget = 50});
  for (const uint64_t id : {1, 2, 3})
    bench.AddScore(id, Prompt(30, static_cast<int32_t>(id) * 1000))->whole = true;
  bench.AddScore(4, Prompt(30, 4000));  // may be cut
  EXPECT_THAT(bench.Step(), ElementsAre(Share{1, 0, 30}));
  EXPECT_THAT(bench.Step(), ElementsAre(Share{2, 0, 30}));
  EXPECT_THAT(bench.Step(), ElementsAre(Share{3, 0, 30}, Share{4, 0, 20}));
}

// Their steps end before activations would leave L3; a longer text has a step of its own.
TEST(Scheduler, WholeTextsShareAStepOf1024Rows) {
  Bench bench({.blocks = 1000, .budget = 2048, .length = 2048});
  const size_t tokens[] = {500, 524, 1, 1500, 30};
  for (uint64_t id = 1; id <= std::size(tokens); ++id)
    bench.AddScore(id, Prompt(tokens[id - 1], static_cast<int32_t>(id) * 2000))->whole = true;
  EXPECT_THAT(bench.Step(), ElementsAre(Share{1, 0, 500}, Share{2, 0, 524}));
  EXPECT_THAT(bench.Step(), ElementsAre(Share{3, 0, 1}));
  EXPECT_THAT(bench.Step(), ElementsAre(Share{4, 0, 1500}));
  EXPECT_THAT(bench.Step(), ElementsAre(Share{5, 0, 30}));
}

}  // namespace
}  // namespace pinion
