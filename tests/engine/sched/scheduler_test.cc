#include "engine/sched/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler_bench.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
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

// Without StepTimes too: rows that decode are no reason to admit nobody.
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

// ---- Refusals and ends ----------------------------------------------------------------------

TEST(Scheduler, RefusesRequestsThatCanNeverFit) {
  Bench bench({.blocks = 4, .length = 200});
  // 64 tokens of KV: 60 + 5 tokens of which the last is never computed.
  EXPECT_TRUE(bench.scheduler.Add(Bench::Make(9, Prompt(60), 5)));
  EXPECT_EQ(RefusalOf(bench, Prompt(60), 6),
            "a prompt of 60 tokens with max_tokens 6 needs 5 KV blocks of 16 tokens, but the cache "
            "has 4; raise --kv-cache-space or lower max_tokens");
  bench.Drain();
  EXPECT_EQ(bench.finished.size(), 1u);
}

TEST(Scheduler, RefusesEmptyAndOverlongPromptsAndBadParameters) {
  Bench bench({.length = 50});
  EXPECT_EQ(RefusalOf(bench, {}, 5), "the prompt is empty; give at least one token");
  EXPECT_EQ(RefusalOf(bench, Prompt(50), 5),
            "the prompt has 50 tokens, but at most 49 fit the model length of 50 and leave room "
            "for output; shorten it or raise --max-model-len");
  EXPECT_THAT(RefusalOf(bench, Prompt(5), 0), HasSubstr("max_tokens is 0"));
  EXPECT_TRUE(bench.scheduler.idle());
}

TEST(Scheduler, LowersMaxTokensToTheModelsLength) {
  Bench bench({.length = 50});
  EXPECT_EQ(bench.Add(1, Prompt(45), 100)->params.max_tokens, 5);
  bench.Drain();
  EXPECT_EQ(bench.finished[0]->tokens.size(), 50u);
  EXPECT_EQ(bench.finished[0]->finish, FinishReason::kLength);
}

TEST(Scheduler, StopsAtEosAndAtStopIds) {
  Bench bench({});
  Sequence* eos = bench.Add(1, Prompt(4), 50);
  Sequence* stop = bench.Add(2, Prompt(4, 2000), 50);
  eos->params.stop_token_ids = {};
  stop->params.stop_token_ids = {9};
  bench.Step(9);
  ASSERT_EQ(bench.finished.size(), 1u);
  EXPECT_EQ(bench.finished[0]->id, 2u);
  bench.Step(kEos);
  ASSERT_EQ(bench.finished.size(), 2u);
  EXPECT_EQ(bench.finished[1]->finish, FinishReason::kStop);
  EXPECT_EQ(bench.finished[1]->tokens.back(), kEos);
}

TEST(Scheduler, ContinuesPastEosIfAsked) {
  Bench bench({});
  bench.Add(1, Prompt(4), 3)->params.ignore_eos = true;
  bench.Add(2, Prompt(4, 2000), 3)->params.min_tokens = 2;
  bench.Step(kEos);
  EXPECT_THAT(bench.finished, IsEmpty());
  bench.Step(kEos);
  ASSERT_EQ(bench.finished.size(), 1u) << "min_tokens are out";
  EXPECT_EQ(bench.finished[0]->id, 2u);
  EXPECT_EQ(bench.finished[0]->finish, FinishReason::kStop);
  bench.Step(kEos);
  EXPECT_EQ(bench.finished.at(1)->finish, FinishReason::kLength);
}

TEST(Scheduler, AbortsWaitingAndRunningSequences) {
  Bench bench({.seqs = 1});
  bench.Add(1, Prompt(20));
  bench.Add(2, Prompt(20, 2000));
  bench.Step();
  EXPECT_EQ(bench.scheduler.Abort(2)->finish, FinishReason::kAborted);
  EXPECT_EQ(bench.scheduler.Abort(2), nullptr);
  EXPECT_GT(bench.pool.used(), 0u);
  EXPECT_EQ(bench.scheduler.Abort(1)->id, 1u);
  EXPECT_EQ(bench.pool.used(), 0u);
  EXPECT_TRUE(bench.scheduler.idle());
}

// ---- Prefix cache ---------------------------------------------------------------------------

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
  EXPECT_EQ(second->block_table[0], first->block_table[0]);
  EXPECT_EQ(second->block_table[1], first->block_table[1]);
  EXPECT_NE(second->block_table[2], first->block_table[2]);
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

// ---- Score requests -------------------------------------------------------------------------

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

// ---- Preemption -----------------------------------------------------------------------------

// Two sequences that want 4 blocks each at their end, and 5 blocks for both.
TEST(Scheduler, PreemptsTheYoungestWhenBlocksRunOut) {
  Bench bench({.blocks = 5, .budget = 100, .caching = false});
  Sequence* first = bench.Add(1, Prompt(15), 40);
  Sequence* second = bench.Add(2, Prompt(15, 2000), 40);
  bench.StepUntilPreemption();
  EXPECT_EQ(first->preemptions, 0);
  EXPECT_EQ(second->preemptions, 1);
  EXPECT_EQ(second->computed, 0u);
  EXPECT_THAT(second->block_table, IsEmpty());
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

TEST(FinishReason, HasTheApisNames) {
  EXPECT_STREQ(Name(FinishReason::kStop), "stop");
  EXPECT_STREQ(Name(FinishReason::kLength), "length");
  EXPECT_STREQ(Name(FinishReason::kAborted), "abort");
  EXPECT_STREQ(Name(FinishReason::kNone), "");
}

}  // namespace
}  // namespace pinion
