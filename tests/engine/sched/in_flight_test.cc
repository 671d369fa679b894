// Several steps between Schedule and Commit, as for the stages of a pipeline.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <utility>

#include "engine/sched/scheduler.h"
#include "timed_bench.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<Share> Begin(Bench& bench) {
  std::vector<Share> shares;
  for (const Slice& slice : bench.scheduler.Schedule())
    shares.push_back({slice.sequence->id, slice.first, slice.count});
  return shares;
}

// Commits the oldest step, which yields a token for each of so many sequences.
void Finish(Bench& bench, size_t yields) {
  for (auto& sequence : bench.scheduler.Commit(std::vector<int32_t>(yields, 7)))
    bench.finished.push_back(std::move(sequence));
}

// So many sequences that decode, from 1 on, each of which has computed 4 tokens.
Setup Steps(size_t steps) { return {.budget = 1000, .steps_in_flight = steps}; }
std::vector<Sequence*> AddDecodes(Bench& bench, uint64_t count) {
  std::vector<Sequence*> sequences;
  for (uint64_t id = 1; id <= count; ++id)
    sequences.push_back(bench.Add(id, Prompt(4, static_cast<int32_t>(100 * id)), 100));
  bench.Step();
  return sequences;
}

TEST(StepsInFlight, SequencesThatDecodeGoRoundInEqualGroups) {
  Bench bench(Steps(2));
  AddDecodes(bench, 4);
  EXPECT_THAT(Begin(bench), ElementsAre(Share{1, 4, 1}, Share{2, 4, 1}));
  EXPECT_THAT(Begin(bench), ElementsAre(Share{3, 4, 1}, Share{4, 4, 1}));
  for (size_t round = 0; round < 3; ++round) {
    Finish(bench, 2);
    EXPECT_THAT(Begin(bench), ElementsAre(Share{1, 5 + round, 1}, Share{2, 5 + round, 1}));
    Finish(bench, 2);
    EXPECT_THAT(Begin(bench), ElementsAre(Share{3, 5 + round, 1}, Share{4, 5 + round, 1}));
  }
}

TEST(StepsInFlight, EveryStepHasASequenceIfThereAreAsMany) {
  Bench bench(Steps(3));
  AddDecodes(bench, 4);
  EXPECT_EQ(Begin(bench).size(), 2u);
  EXPECT_EQ(Begin(bench).size(), 1u);
  EXPECT_EQ(Begin(bench).size(), 1u);
}

TEST(StepsInFlight, GroupsBecomeEqualAgainWhenSequencesEnd) {
  Bench bench(Steps(2));
  const auto sequences = AddDecodes(bench, 4);
  sequences[0]->params.max_tokens = sequences[1]->params.max_tokens = 2;
  Begin(bench);
  Begin(bench);
  Finish(bench, 2);
  EXPECT_EQ(bench.finished.size(), 2u);
  EXPECT_THAT(Begin(bench), IsEmpty()) << "both that are left are in flight";
  Finish(bench, 2);
  EXPECT_THAT(Begin(bench), ElementsAre(Share{3, 5, 1}));
  EXPECT_THAT(Begin(bench), ElementsAre(Share{4, 5, 1}));
}

TEST(StepsInFlight, ASequenceWhoseTokenIsBeingComputedWaitsForIt) {
  Bench bench(Steps(2));
  AddDecodes(bench, 1);
  EXPECT_THAT(Begin(bench), ElementsAre(Share{1, 4, 1}));
  EXPECT_THAT(Begin(bench), IsEmpty());
  Finish(bench, 1);
  EXPECT_THAT(Begin(bench), ElementsAre(Share{1, 5, 1}));
}

TEST(StepsInFlight, ThePromptsNextChunkFollowsTheOneInFlight) {
  Bench bench({.budget = 20, .steps_in_flight = 3});
  bench.Add(1, Prompt(45));
  EXPECT_THAT(Begin(bench), ElementsAre(Share{1, 0, 20}));
  EXPECT_THAT(Begin(bench), ElementsAre(Share{1, 20, 20}));
  EXPECT_THAT(Begin(bench), ElementsAre(Share{1, 40, 5}));
  Finish(bench, 0);
  Finish(bench, 0);
  EXPECT_THAT(Begin(bench), IsEmpty());
  Finish(bench, 1);
  EXPECT_THAT(Begin(bench), ElementsAre(Share{1, 45, 1}));
}

TEST(StepsInFlight, APromptThatIsScoredEndsWithItsLastStep) {
  Bench bench({.budget = 20, .steps_in_flight = 3});
  bench.AddScore(1, Prompt(45));
  for (const size_t count : {20, 20, 5}) {
    const auto shares = Begin(bench);
    ASSERT_EQ(shares.size(), 1u);
    EXPECT_EQ(shares[0].count, count);
  }
  for (const size_t ended : {0, 0, 1}) {
    Finish(bench, 0);
    EXPECT_EQ(bench.finished.size(), ended);
  }
}

TEST(StepsInFlight, APromptTakesAPrefixThatIsBeingComputed) {
  Bench bench({.budget = 40, .steps_in_flight = 2});
  bench.Add(1, Joined(Prompt(32), {1, 2}));
  EXPECT_THAT(Begin(bench), ElementsAre(Share{1, 0, 34}));
  const Sequence* second = bench.Add(2, Joined(Prompt(32), {3, 4}));
  EXPECT_THAT(Begin(bench), ElementsAre(Share{2, 32, 2}));
  EXPECT_EQ(second->cached_prompt_tokens, 32u);
}

// Both take two blocks of the four; then the first needs another while the last is in flight.
TEST(StepsInFlight, NoneIsPreemptedWhileAStepComputesIt) {
  Bench bench({.blocks = 4, .caching = false, .steps_in_flight = 2});
  const Sequence* first = bench.Add(1, Prompt(14), 50);
  const Sequence* last = bench.Add(2, Prompt(1, 500), 50);
  std::deque<size_t> open;  // slices of the steps in flight
  bool pauses = false;
  for (int step = 0; step < 1000 && last->preemptions == 0; ++step) {
    const bool in_flight = last->steps_in_flight > 0;
    const size_t slices = Begin(bench).size();
    ASSERT_FALSE(in_flight && last->preemptions > 0);
    pauses = pauses || (in_flight && slices == 0 && first->steps_in_flight == 0);
    if (slices > 0) open.push_back(slices);
    if (slices > 0 && open.size() < 2) continue;
    Finish(bench, open.front());
    open.pop_front();
  }
  EXPECT_EQ(last->preemptions, 1);
  EXPECT_TRUE(pauses);
}

TEST(StepsInFlight, AnAbortedSequenceEndsWithItsLastStepAndTakesNoToken) {
  Bench bench({.budget = 20, .steps_in_flight = 2});
  const Sequence* sequence = bench.Add(1, Prompt(50));
  Begin(bench);
  Begin(bench);
  EXPECT_EQ(bench.scheduler.Abort(1), nullptr);
  EXPECT_EQ(bench.scheduler.Abort(1), nullptr) << "twice";
  Finish(bench, 0);
  EXPECT_THAT(Begin(bench), IsEmpty()) << "it has a chunk left";
  EXPECT_THAT(bench.finished, IsEmpty());
  Finish(bench, 0);
  ASSERT_EQ(bench.finished.size(), 1u);
  EXPECT_EQ(bench.finished[0].get(), sequence);
  EXPECT_EQ(sequence->finish, FinishReason::kAborted);
  EXPECT_EQ(bench.pool.used(), 0u);
  EXPECT_EQ(bench.scheduler.stats().finished, 0u);
  EXPECT_TRUE(bench.scheduler.idle());
}

TEST(StepsInFlight, ATokenOfAnAbortedSequenceIsDropped) {
  Bench bench(Steps(2));
  AddDecodes(bench, 2);
  Begin(bench);
  EXPECT_EQ(bench.scheduler.Abort(1), nullptr);
  bench.Add(1, Prompt(3), 5);  // another of the same number
  Finish(bench, 1);
  ASSERT_EQ(bench.finished.size(), 1u);
  EXPECT_EQ(bench.finished[0]->output_tokens(), 1u);
  EXPECT_THAT(Begin(bench), ElementsAre(Share{2, 4, 1}, Share{1, 0, 3}));
}

// Two steps of 10 rows: the second adds only what it takes beyond the first.
TEST(StepsInFlight, AStepsTimeBeginsWhenTheOneBeforeHasEnded) {
  TimedBench bench({.steps_in_flight = 2});
  bench.AddDecodes(1, 2);
  const auto begin = [&] { ASSERT_EQ(bench.scheduler.Schedule().size(), 1u); };
  begin();
  bench.clock.now_ns += 3'000'000;
  begin();
  bench.clock.now_ns += 5'000'000;
  bench.scheduler.Commit({7});
  EXPECT_NEAR(bench.times.seen_s, 0.004, 1e-9) << "half of the way through two stages";
  bench.clock.now_ns += 4'000'000;
  bench.scheduler.Commit({7});
  EXPECT_NEAR(bench.times.seen_s, 0.004, 1e-9);
}

// A decode takes longer than the bound. The prompt that waits lacks blocks as long as both decode.
TEST(StepsInFlight, AnEmptyScheduleIsNotCountedAsAStep) {
  TimedBench bench({.blocks = 8, .bound = {0.004, 0.004, 0}, .steps_in_flight = 3});
  bench.Add(1, 16, 60);
  const Sequence* second = bench.Add(2, 3 * 16, 60);
  for (int step = 0; step < 50 && second->computed < 48; ++step) bench.Step();
  ASSERT_EQ(second->computed, 48u);
  const auto begin = [&] { return bench.scheduler.Schedule().size(); };
  bench.Add(3, 4 * 16);
  EXPECT_EQ(begin(), 1u);
  EXPECT_EQ(begin(), 1u);
  const uint64_t bounded = bench.scheduler.stats().bounded_steps;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(begin(), 0u);
  EXPECT_EQ(bench.scheduler.stats().bounded_steps, bounded);
  EXPECT_EQ(bench.scheduler.Abort(2), nullptr);
  bench.scheduler.Commit({7});
  bench.scheduler.Commit({7});  // which gives its blocks back
  EXPECT_EQ(begin(), 1u) << "the third step without prompts; the next one has some";
}

// A prompt that would delay sequences in flight is not alone.
TEST(StepsInFlight, AChunkIsBoundedByDecodesInFlight) {
  TimedBench bench({.bound = {0.1, 0.5, 8}, .steps_in_flight = 2});
  bench.Add(1, 1, 5000);
  bench.Step();
  ASSERT_EQ(bench.scheduler.Schedule().size(), 1u);
  bench.Add(2, 4000);
  const std::vector<Slice>& slices = bench.scheduler.Schedule();
  ASSERT_EQ(slices.size(), 1u);
  EXPECT_LE(static_cast<double>(slices[0].count) * bench.times.row_s, 0.1);
  EXPECT_GT(slices[0].count, 0u);
}

}  // namespace
}  // namespace pinion
