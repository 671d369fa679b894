#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/sched/scheduler.h"
#include "scheduler_bench.h"

namespace pinion {
namespace {

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

}  // namespace
}  // namespace pinion
