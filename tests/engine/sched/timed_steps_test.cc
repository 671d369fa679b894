#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "timed_bench.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// ---- Bounds ------------------------------------------------------------------------------------

// 5 ms a row. Three decodes take 15 ms and let a step last 120.
TEST(TimedSteps, EndsStepsWithinTheirBound) {
  TimedBench bench;
  bench.AddDecodes(1, 3);
  bench.Add(9, 1000);
  while (!bench.ended.contains(9)) {
    bench.Step();
    EXPECT_LE(bench.last_s, 0.120);
    EXPECT_DOUBLE_EQ(bench.scheduler.stats().bound_s, 0.120);
  }
  EXPECT_EQ(bench.scheduler.stats().steps_over_bound, 0u);
}

TEST(TimedSteps, TellsTheBoundOfTheLastStepThatHadOne) {
  TimedBench bench;
  bench.AddDecodes(1, 3);
  const uint64_t before = bench.scheduler.stats().bounded_steps;
  bench.Add(9, 10);
  bench.Step();
  EXPECT_EQ(bench.scheduler.stats().bounded_steps, before + 1);
  for (int step = 0; step < 3; ++step) bench.Step();
  EXPECT_EQ(bench.scheduler.stats().bounded_steps, before + 1) << "decodes have none";
  EXPECT_DOUBLE_EQ(bench.scheduler.stats().bound_s, 0.120);
}

TEST(TimedSteps, FillsABoundWithWholeGranules) {
  TimedBench bench({.bound = {0.3, 0.3, 0}});
  bench.AddDecodes(1, 3);
  bench.Add(9, 1000);
  EXPECT_EQ(bench.Step()[9], 48u) << "57 would fit beside the decodes";
}

TEST(TimedSteps, KeepsTheBoundWithinItsLimits) {
  TimedBench bench;
  bench.AddDecodes(1, 1);
  bench.Add(50, 1000);
  bench.Step();
  EXPECT_DOUBLE_EQ(bench.scheduler.stats().bound_s, 0.1) << "8 x 5 ms are less";
  bench.AddDecodes(2, 20);
  bench.Step();
  EXPECT_DOUBLE_EQ(bench.scheduler.stats().bound_s, 0.5) << "8 x 105 ms are more";
}

TEST(TimedSteps, CutsNoChunkBelowFullSpeedIfTheBoundAllows) {
  TimedBench bench;
  bench.times.full_speed = 64;
  bench.AddDecodes(1, 1);
  bench.Add(50, 1000);
  EXPECT_EQ(bench.Step()[50], 64u);
  bench.times.full_speed = 256;
  EXPECT_EQ(bench.Step()[50], 96u) << "the bound is 500 ms at most";
}

TEST(TimedSteps, TakesLongerIfHalfASecondIsFarBelowFullSpeed) {
  TimedBench bench({.bound = {0.1, 0.5, 8, 1, 2}});
  bench.Add(1, 4000);
  EXPECT_EQ(bench.Step()[1], 96u) << "full speed is reached in less";
  bench.times.full_speed = 160;
  EXPECT_EQ(bench.Step()[1], 160u);
  bench.times.full_speed = 1000;
  EXPECT_EQ(bench.Step()[1], 400u) << "two seconds at most";
  bench.AddDecodes(2, 1);
  EXPECT_EQ(bench.Step()[1], 192u) << "a second while streams wait";
  bench.times.full_speed = 64;
  EXPECT_EQ(bench.Step()[1], 64u);
}

// Arriving and leaving sequences are seen within the upper limit.
TEST(TimedSteps, BoundsThePromptThatIsAlone) {
  TimedBench bench;
  bench.Add(1, 4000);
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(bench.Step()[1], 96u) << "500 ms are 100 rows";
    EXPECT_DOUBLE_EQ(bench.scheduler.stats().bound_s, 0.5);
  }
}

TEST(TimedSteps, PlansWithTheMargin) {
  TimedBench bench({.bound = {0.4, 0.4, 0}});
  bench.times.margin = 1.25;
  bench.AddDecodes(1, 1);
  bench.Add(9, 1000);
  EXPECT_EQ(bench.Step()[9], 48u) << "0.32 s, not 0.4";
}

TEST(TimedSteps, CountsStepsThatExceedTheirBound) {
  TimedBench bench;
  bench.AddDecodes(1, 3);
  bench.Step(100);
  EXPECT_EQ(bench.scheduler.stats().steps_over_bound, 0u) << "decodes alone have no bound";
  bench.Add(9, 1000);
  bench.Step(1.5);
  bench.Step(1.2);
  EXPECT_EQ(bench.scheduler.stats().steps_over_bound, 1u);
}

TEST(TimedSteps, ReportsTheWorkOfAStepAndItsTime) {
  TimedBench bench;
  bench.AddDecodes(1, 3);
  bench.Add(9, 16);
  bench.Step(1.5);
  EXPECT_EQ(bench.times.seen.rows, 19u);
  EXPECT_EQ(bench.times.seen.logit_rows, 4u);
  EXPECT_NEAR(bench.times.seen_s, 19 * 0.005 * 1.5, 1e-9);
}

// 200 decodes take a second, twice the bound.
TEST(TimedSteps, GivesPrefillAShareUnderEndlessDecodes) {
  TimedBench bench({.blocks = 20000, .seqs = 300});
  bench.AddDecodes(1, 200);
  bench.Add(999, 64);
  std::vector<size_t> rows;
  for (int step = 0; step < 8; ++step) rows.push_back(bench.Step()[999]);
  EXPECT_THAT(rows, ElementsAre(0, 0, 0, 16, 0, 0, 0, 16));
}

// ---- Fairness ----------------------------------------------------------------------------------

TEST(TimedSteps, AShortPromptOvertakesALongOne) {
  TimedBench bench;
  bench.Add(1, 4000);
  bench.Step();
  bench.Add(2, 16);
  bench.Step();
  EXPECT_TRUE(bench.ended.contains(2));
  EXPECT_FALSE(bench.ended.contains(1));
}

// So many short ones arrive that they alone fill every step.
TEST(TimedSteps, ALongPromptEndsWithinAQuarterMoreUnderAFloodOfShortOnes) {
  TimedBench bench;
  const double began_s = bench.clock.seconds();
  bench.Add(1, 4000);
  uint64_t last = 1;
  while (!bench.ended.contains(1)) {
    while (bench.scheduler.stats().waiting < 20) bench.Add(++last, 32);
    bench.Step();
    ASSERT_LT(last, 100000u);
  }
  const double alone_s = 4000 * 0.005;
  EXPECT_LE(bench.ended[1] - began_s, 1.25 * alone_s);
  // Short ones went on ending all the time.
  bench.ended.erase(1);
  double before_s = began_s;
  for (const auto& [id, at_s] : bench.ended) {
    EXPECT_LE(at_s - before_s, 6.0) << id;
    before_s = at_s;
  }
}

// Long enough overdue, the long one leaves a newcomer what the others have been owed.
TEST(TimedSteps, ANewcomerDoesNotWaitForAnOverduePrompt) {
  TimedBench bench;
  bench.AddDecodes(1, 10);
  Sequence* overdue = bench.Add(20, 4000);
  overdue->arrived_ns -= 100'000'000'000;
  for (int step = 0; step < 10; ++step) bench.Step();
  bench.Add(21, 16);
  bench.Step();
  EXPECT_TRUE(bench.ended.contains(21));
}

TEST(TimedSteps, AnOverduePromptGetsAllButASixteenthOfThePrefillTime) {
  TimedBench bench;
  bench.Add(1, 2000)->arrived_ns -= 100'000'000'000;
  size_t overdue = 0, others = 0;
  uint64_t last = 1;
  for (int step = 0; step < 10; ++step) {
    while (bench.scheduler.stats().waiting < 20) bench.Add(++last, 32);
    for (const auto& [id, rows] : bench.Step()) (id == 1 ? overdue : others) += rows;
  }
  EXPECT_GT(others, 0u);
  EXPECT_LE(others, (overdue + others) / 16);
}

// One after the other they would end after 10 and 20 s.
TEST(TimedSteps, TwoLongPromptsBothEndAsIfOneAfterTheOther) {
  TimedBench bench;
  const double began_s = bench.clock.seconds();
  bench.Add(1, 2000);
  bench.Add(2, 2000);
  bench.StepUntilEnd(1);
  bench.StepUntilEnd(2);
  EXPECT_LE(bench.ended[1] - began_s, 10 * 1.25);
  EXPECT_LE(bench.ended[2] - began_s, 20.1);
}

TEST(TimedSteps, PriorityBeatsFairness) {
  TimedBench bench;
  bench.Add(1, 2000)->arrived_ns -= 100'000'000'000;  // overdue
  bench.Step();
  bench.Add(2, 150, 1, /*priority=*/-1);
  EXPECT_THAT(bench.Step(), ElementsAre(Pair(2, 96)));
  EXPECT_EQ(bench.Step()[2], 54u);
  bench.Add(3, 16, 1, /*priority=*/1);
  EXPECT_EQ(bench.Step().count(3), 0u) << "the long one comes first, short as this one is";
}

TEST(TimedSteps, ChoicesOfOnePromptComputeItOnce) {
  TimedBench bench({.caching = true});
  bench.Add(1, 320, 2, 0, /*group=*/5);
  bench.Add(2, 320, 2, 0, /*group=*/5);
  size_t rows = 0;
  for (int step = 0; step < 20 && !bench.ended.contains(2); ++step) rows += bench.Step()[2];
  EXPECT_EQ(rows, 16u + 1) << "the last block, and the second token";
}

// ---- Blocks ------------------------------------------------------------------------------------

// 20 blocks, of which 8 are taken: the others suffice for the short prompts, not for the long one.
TEST(TimedSteps, StopsAdmissionForAnOverduePrompt) {
  TimedBench bench({.blocks = 20});
  bench.Add(1, 8 * 16, 190);
  bench.Step();
  Sequence* waiting = bench.Add(2, 15 * 16);
  bench.Add(3, 16);
  bench.Step();
  EXPECT_TRUE(bench.ended.contains(3)) << "skips one that is not overdue";
  waiting->arrived_ns -= 100'000'000'000;
  bench.Add(4, 16);
  for (int step = 0; step < 10; ++step) EXPECT_EQ(bench.Step().size(), 1u);
  EXPECT_TRUE(bench.scheduler.Abort(1));
  bench.StepUntilEnd(2);
  bench.StepUntilEnd(4);
}

// A prompt that is only half computed still takes the blocks of its other half.
TEST(TimedSteps, CountsBlocksThatRunningPromptsStillNeed) {
  TimedBench bench({.blocks = 100});
  bench.Add(1, 80 * 16);
  bench.Step();
  bench.Add(2, 30 * 16);
  while (!bench.ended.contains(1)) EXPECT_EQ(bench.Step().count(2), 0u);
  EXPECT_EQ(bench.scheduler.stats().preemptions, 0u);
  bench.StepUntilEnd(2);
}

TEST(TimedSteps, RunsMoreThan512AtOnce) {
  TimedBench bench({.blocks = 1300, .seqs = 600});
  bench.times.row_s = 1e-6;
  for (uint64_t id = 1; id <= 600; ++id) bench.Add(id, 2, 16);
  for (int step = 0; step < 10; ++step) bench.Step();
  EXPECT_EQ(bench.scheduler.stats().running, 600u);
}

// Three long answers and blocks for one and a half. The newcomer is shorter, but did not run yet.
TEST(TimedSteps, ResumesInOrder) {
  TimedBench bench({.blocks = 20, .seqs = 3});
  bench.Add(1, 16, 200);
  bench.Add(2, 17, 200);
  bench.Add(3, 16, 200);
  for (int step = 0; step < 1000 && bench.scheduler.stats().preemptions < 2; ++step) bench.Step();
  ASSERT_EQ(bench.scheduler.stats().preemptions, 2u);
  bench.Add(4, 1);
  std::vector<uint64_t> resumed;
  for (int step = 0; step < 1000 && resumed.size() < 3; ++step)
    for (const auto& [id, rows] : bench.Step())
      if (id != 1 && std::find(resumed.begin(), resumed.end(), id) == resumed.end())
        resumed.push_back(id);
  EXPECT_THAT(resumed, ElementsAre(2, 3, 4));
}

}  // namespace
}  // namespace pinion
