#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/sched/scheduler.h"
#include "scheduler_bench.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

TEST(Scheduler, ASequenceWhoseTokenCannotBeChosenIsAborted) {
  Bench bench({});
  bench.Add(1, Prompt(20));
  bench.Add(2, Prompt(20, 2000));
  bench.scheduler.Schedule();
  auto ended = bench.scheduler.Commit({-1, 7});
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0]->id, 1u);
  EXPECT_EQ(ended[0]->finish, FinishReason::kAborted);
  EXPECT_EQ(ended[0]->output_tokens(), 0u);
  EXPECT_EQ(bench.Step(), (std::vector<Share>{{2, 20, 1}})) << "the other goes on";
  bench.Drain();
  EXPECT_EQ(bench.pool.used(), 0u);
  EXPECT_EQ(bench.scheduler.stats().finished, 1u) << "an aborted one does not count";
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

TEST(FinishReason, HasTheApisNames) {
  EXPECT_STREQ(Name(FinishReason::kStop), "stop");
  EXPECT_STREQ(Name(FinishReason::kLength), "length");
  EXPECT_STREQ(Name(FinishReason::kAborted), "abort");
  EXPECT_STREQ(Name(FinishReason::kNone), "");
}

// A step whose slices that sample yield `token` and `following`.
std::vector<Share> StepWith(Bench& bench, int32_t token, const std::vector<int32_t>& following) {
  std::vector<Share> shares;
  std::vector<int32_t> sampled;
  for (const Slice& slice : bench.scheduler.Schedule()) {
    shares.push_back({slice.sequence->id, slice.first, slice.count});
    if (slice.samples) sampled.push_back(token);
  }
  const Scheduler::Following all(sampled.size(), following);
  for (auto& sequence : bench.scheduler.Commit(sampled, all))
    bench.finished.push_back(std::move(sequence));
  return shares;
}

TEST(Scheduler, ComputesTokensThatFollowWithoutAChoiceInOneSliceAheadOfPrompts) {
  Bench bench({.budget = 8});
  bench.Add(1, Prompt(4));
  EXPECT_THAT(StepWith(bench, 7, {8, 9}), ElementsAre(Share{1, 0, 4}));
  bench.Add(2, Prompt(30, 2000));
  EXPECT_THAT(StepWith(bench, 7, {}), ElementsAre(Share{1, 4, 3}, Share{2, 0, 5}));
  EXPECT_THAT(StepWith(bench, 7, {}), ElementsAre(Share{1, 7, 1}, Share{2, 5, 7}));
}

TEST(Scheduler, CutsTokensThatFollowToTheStepsBudget) {
  Bench bench({.budget = 4});
  Sequence* one = bench.Add(1, Prompt(4));
  StepWith(bench, 7, {8, 9, 10, 11, 12});
  EXPECT_THAT(StepWith(bench, 7, {}), ElementsAre(Share{1, 4, 4}));
  EXPECT_EQ(one->tokens.size(), 10u) << "not all is computed from which a token could be chosen";
  EXPECT_THAT(StepWith(bench, 7, {}), ElementsAre(Share{1, 8, 2}));
  EXPECT_EQ(one->tokens.size(), 11u);
}

TEST(Scheduler, TokensThatFollowGiveWayToSingleOnes) {
  Bench bench({.budget = 4});
  bench.Add(1, Prompt(2));
  bench.Add(2, Prompt(2, 2000));
  ASSERT_EQ(bench.scheduler.Schedule().size(), 2u);
  const std::vector<int32_t> following = {8, 9, 10, 11};
  bench.scheduler.Commit({7, 7}, {following, {}});
  EXPECT_THAT(StepWith(bench, 7, {}), ElementsAre(Share{2, 2, 1}, Share{1, 2, 3}));
}

TEST(Scheduler, NothingFollowsAnEnd) {
  Bench bench({});
  bench.Add(1, Prompt(4), 3);
  bench.Add(2, Prompt(4, 2000), 50)->params.stop_token_ids = {9};
  bench.Add(3, Prompt(4, 3000), 50)->params.stop_token_ids = {7};
  StepWith(bench, 7, {8, 9, 10, 11});
  ASSERT_EQ(bench.finished.size(), 3u);
  const FinishReason reasons[] = {FinishReason::kLength, FinishReason::kStop, FinishReason::kStop};
  const size_t outputs[] = {3, 3, 1};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(bench.finished[i]->finish, reasons[i]) << i;
    EXPECT_EQ(bench.finished[i]->output_tokens(), outputs[i]) << i;
  }
  EXPECT_TRUE(bench.scheduler.idle());
}

}  // namespace
}  // namespace pinion
