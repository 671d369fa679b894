#include "engine/sched/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "scheduler_bench.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Scheduler, PrefillsThenDecodesOneTokenPerStep) {
  Bench bench({});
  Sequence* sequence = bench.Add(1, Prompt(10), 3);
  EXPECT_THAT(bench.Step(), ElementsAre(Share{1, 0, 10}));
  EXPECT_EQ(sequence->output_tokens(), 1u);
  EXPECT_THAT(bench.Step(), ElementsAre(Share{1, 10, 1}));
  EXPECT_THAT(bench.Step(), ElementsAre(Share{1, 11, 1}));
  ASSERT_EQ(bench.finished.size(), 1u);
  EXPECT_EQ(bench.finished[0]->finish, FinishReason::kLength);
  EXPECT_EQ(bench.finished[0]->output_tokens(), 3u);
  EXPECT_TRUE(bench.scheduler.idle());
  EXPECT_EQ(bench.pool.used(), 0u);
  EXPECT_THAT(bench.scheduler.Schedule(), IsEmpty());
}

// A place is a number below max_num_seqs that no other running sequence has.
TEST(Scheduler, GivesEveryRunningSequenceAPlaceOfItsOwn) {
  Bench bench({.seqs = 3});
  std::vector<Sequence*> sequences;
  for (uint64_t id = 1; id <= 6; ++id)
    sequences.push_back(
        bench.Add(id, Prompt(5, static_cast<int32_t>(1000 * id)), 2 + 3 * (id % 3)));
  while (!bench.scheduler.idle()) {
    bench.Step();
    std::set<int32_t> places;
    for (const Sequence* sequence : sequences) {
      if (sequence->place < 0) continue;
      EXPECT_LT(sequence->place, 3);
      EXPECT_TRUE(places.insert(sequence->place).second) << sequence->place << " twice";
    }
    EXPECT_EQ(places.size(), bench.scheduler.stats().running);
  }
  EXPECT_EQ(bench.finished.size(), 6u);
}

TEST(Scheduler, KeepsDecodeRunningDuringLongPrefill) {
  Bench bench({.budget = 20});
  bench.Add(1, Prompt(5), 50);
  bench.Step();
  bench.Add(2, Prompt(60, 5000), 50);
  EXPECT_THAT(bench.Step(), ElementsAre(Share{1, 5, 1}, Share{2, 0, 19}));
  EXPECT_THAT(bench.Step(), ElementsAre(Share{1, 6, 1}, Share{2, 19, 19}));
  EXPECT_THAT(bench.Step(), ElementsAre(Share{1, 7, 1}, Share{2, 38, 19}));
  EXPECT_THAT(bench.Step(), ElementsAre(Share{1, 8, 1}, Share{2, 57, 3}));
  EXPECT_THAT(bench.Step(), ElementsAre(Share{1, 9, 1}, Share{2, 60, 1}));
}

TEST(Scheduler, SamplesOnlyOnceThePromptIsComplete) {
  Bench bench({.budget = 7});
  bench.Add(1, Prompt(10));
  EXPECT_FALSE(bench.scheduler.Schedule()[0].samples);
  bench.scheduler.Commit({});
  const Slice last = bench.scheduler.Schedule()[0];
  EXPECT_EQ(last.first, 7u);
  EXPECT_EQ(last.count, 3u);
  EXPECT_TRUE(last.samples);
  bench.scheduler.Commit({5});
  EXPECT_EQ(last.sequence->tokens.back(), 5);
}

TEST(Scheduler, FillsAStepWithSeveralPromptsInOrderOfArrival) {
  Bench bench({.budget = 50});
  bench.Add(1, Prompt(20, 1000));
  bench.Add(2, Prompt(20, 2000));
  bench.Add(3, Prompt(20, 3000));
  EXPECT_THAT(bench.Step(), ElementsAre(Share{1, 0, 20}, Share{2, 0, 20}, Share{3, 0, 10}));
  EXPECT_THAT(bench.Step(), ElementsAre(Share{1, 20, 1}, Share{2, 20, 1}, Share{3, 10, 10}));
}

TEST(Scheduler, AdmitsNoPromptIntoAStepThatComputesAtFullSpeed) {
  Bench bench({.blocks = 200, .budget = 2048});
  for (uint64_t id = 1; id <= 4; ++id) bench.Add(id, Prompt(300, static_cast<int32_t>(id) * 1000));
  EXPECT_THAT(bench.Step(), ElementsAre(Share{1, 0, 300}, Share{2, 0, 300}));
  EXPECT_THAT(bench.Step(),
              ElementsAre(Share{1, 300, 1}, Share{2, 300, 1}, Share{3, 0, 300}, Share{4, 0, 300}));
}

TEST(Scheduler, FullSpeedBeginsWith512Tokens) {
  Bench below({.blocks = 200, .budget = 2048}), reached({.blocks = 200, .budget = 2048});
  below.Add(1, Prompt(511));
  reached.Add(1, Prompt(512));
  for (Bench* bench : {&below, &reached}) bench->Add(2, Prompt(100, 5000));
  EXPECT_THAT(below.Step(), ElementsAre(Share{1, 0, 511}, Share{2, 0, 100}));
  EXPECT_THAT(reached.Step(), ElementsAre(Share{1, 0, 512}));
}

TEST(Scheduler, GivesALongPromptTheWholeBudgetInAStep) {
  Bench bench({.blocks = 200, .budget = 2048});
  bench.Add(1, Prompt(100));
  bench.Add(2, Prompt(900, 5000));
  EXPECT_THAT(bench.Step(), ElementsAre(Share{1, 0, 100}, Share{2, 0, 900}));
}

TEST(Scheduler, FillsTheBudgetWithTextsToScore) {
  Bench bench({.blocks = 200, .budget = 2048});
  for (uint64_t id = 1; id <= 3; ++id)
    bench.AddScore(id, Prompt(600, static_cast<int32_t>(id) * 1000));
  EXPECT_EQ(bench.Step().size(), 3u);
}

TEST(Scheduler, WorksWithABudgetOfOneToken) {
  Bench bench({.budget = 1});
  bench.Add(1, Prompt(5, 1000), 4);
  bench.Add(2, Prompt(3, 2000), 4);
  bench.Drain();
  ASSERT_EQ(bench.finished.size(), 2u);
  EXPECT_EQ(bench.finished[0]->id, 1u);
  EXPECT_EQ(bench.finished[1]->output_tokens(), 4u);
}

TEST(Scheduler, RunsAtMostMaxNumSeqsAtOnce) {
  Bench bench({.seqs = 2});
  for (uint64_t id = 1; id <= 4; ++id) bench.Add(id, Prompt(4, static_cast<int32_t>(id) * 100), 2);
  EXPECT_EQ(bench.Step().size(), 2u);
  EXPECT_EQ(bench.scheduler.stats().running, 2u);
  EXPECT_EQ(bench.scheduler.stats().waiting, 2u);
  bench.Drain();
  EXPECT_EQ(bench.scheduler.stats().finished, 4u);
}

// Without StepTimes too: rows that decode do not keep prompts from being admitted.
TEST(Scheduler, RunsMoreThan512AtOnce) {
  Bench bench({.blocks = 1300, .budget = 2048, .seqs = 600});
  for (uint64_t id = 1; id <= 600; ++id) bench.Add(id, Prompt(2, static_cast<int32_t>(id) * 10));
  for (int step = 0; step < 4; ++step) bench.Step();
  EXPECT_EQ(bench.scheduler.stats().running, 600u);
}

TEST(Scheduler, StartsTheBestPriorityFirst) {
  Bench bench({.budget = 20, .seqs = 1});
  bench.Add(1, Prompt(20, 1000), 1);
  auto urgent = Bench::Make(2, Prompt(20, 2000), 1);
  urgent->priority = -1;
  ASSERT_TRUE(bench.scheduler.Add(std::move(urgent)));
  bench.Add(3, Prompt(20, 3000), 1);
  bench.Drain();
  EXPECT_EQ(bench.finished[0]->id, 2u);
  EXPECT_EQ(bench.finished[1]->id, 1u);
}

}  // namespace
}  // namespace pinion
