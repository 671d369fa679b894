// Pairs whose servers run at once: which can, for how many waves, and what a sweep makes of them.

#include "harness/sweep/in_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/host/budget.h"
#include "engine/host/machine.h"
#include "sweep_fixture.h"

namespace pinion::harness {
namespace {

using testing::HasSubstr;

TrialRequest Of(const char* model) {
  TrialRequest request;
  request.configuration.options.model = model;
  return request;
}

TEST(CanTakeTurns, IfMemoryHoldsBothServersOfPinion) {
  const TrialRequest tiny = Of("preset:tiny");
  EXPECT_TRUE(CanTakeTurns(tiny, tiny));
  const auto budget = ComputeBudget(*ThisMachine());
  TrialRequest large = tiny;  // a cache of more than half of the memory
  large.configuration.options.kv_cache_bytes = budget->memory_available_bytes / 5 * 3;
  EXPECT_FALSE(CanTakeTurns(large, large));
  EXPECT_TRUE(CanTakeTurns(tiny, tiny));
  TrialRequest other = tiny;
  other.engine.kind = EngineChoice::Kind::kCommand;
  EXPECT_FALSE(CanTakeTurns(tiny, other)) << "its memory is unknown";
}

// A start of 3 s with its warm-up, and waves of 4 s.
TEST(WavesFor, LeavesRoomForEnoughRounds) {
  TrialRow alone;
  alone.seconds = 7;
  alone.samples = {{"start_s", 0, 2}};
  alone.info.warm_up_s = 1.0;
  EXPECT_EQ(WavesFor(alone, 600), 4) << "a round has 42.8 s: 6 for the starts, 8 a wave";
  EXPECT_EQ(WavesFor(alone, 500), 3) << "29.7 s beside the starts";
  EXPECT_EQ(WavesFor(alone, 10), 2) << "never fewer";
  EXPECT_EQ(WavesFor(alone, 1e6), kMostWaves);
  alone.info.once_s = 3;  // the ceilings: waves of 1 s
  EXPECT_EQ(WavesFor(alone, 300), 7) << "15.4 s beside the starts";
}

class InTurns : public SweepTest {
 protected:
  void SetUp() override {
    SweepTest::SetUp();
    Define(kPair);
  }

  // A trial alone, or two sides of which the one with max_num_seqs 11 has half of the speed; `bad`
  // may answer otherwise.
  void WriteSides(const char* bad) {
    WriteChild(StrCat(R"sh(#!/bin/sh
IFS= read -r request
echo trial >> "${0%/*}/trials"
side() {
  echo '{"samples":[{"metric":"output_tokens_per_s","concurrency":0,"value":'$1'}],"suspect":[],
"info":{"isa":"fake","threads":1'$2'}}'
}
waves() {
  echo ',"waves":[[{"metric":"output_tokens_per_s","concurrency":0,"value":'$1'}],[{"metric":"output_tokens_per_s","concurrency":0,"value":'$1'}]]'
}
case "$request" in *'"sides":'*) ;; *) side 100; exit 0 ;; esac
first=100 second=50
case "${request%%\"waves\":*}" in *'"max_num_seqs":11,'*'"max_num_seqs":128,'*) first=50 second=100 ;; esac
)sh",
                      bad, R"sh(
echo "{\"sides\":[$(side $first "$(waves $first)"),$(side $second "$(waves $second)")]}"
)sh")
                   .c_str());
  }

  static constexpr char kPair[] =
      R"({"candidates":[{"max_num_seqs":11}],"strategy":"pair","objectives":["throughput"],"rounds":8})";
};

TEST_F(InTurns, ARoundIsOneProcessAndBothSidesAreStored) {
  WriteSides("");
  const auto end = RunSweep(request_, progress_);
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_THAT(progress_.notes, HasSubstr("both servers run at once"));
  EXPECT_EQ(TrialsRun(), 9u) << "one alone, to learn how long trials are, and eight rounds";
  const Results results = Load();
  EXPECT_EQ(results.verdicts[0].outcome, Outcome::kBaselineBest);
  EXPECT_NEAR(results.verdicts[0].best_ratio.median, 0.5, 1e-9);
  EXPECT_EQ(results.candidates[1].trials, 8);
  EXPECT_NEAR(results.candidates[1].seconds, 8 * TrialClock::kTrialSeconds / 2, 1e-9)
      << "half of each process's time";
  request_.resume = true;
  ASSERT_TRUE(RunSweep(request_, progress_));
  EXPECT_EQ(TrialsRun(), 9u);
}

TEST_F(InTurns, ASideThatFailsIsTheOneThatIsToldOf) {
  WriteSides(R"sh(
good="$(side 100 "$(waves 100)")" bad='{"error":"the server ended"}'
[ $first = 50 ] && echo "{\"sides\":[$bad,$good]}" || echo "{\"sides\":[$good,$bad]}"
exit 0)sh");
  ASSERT_TRUE(RunSweep(request_, progress_));
  const Results results = Load();
  EXPECT_EQ(results.candidates[0].status, CandidateStatus::kOk);
  EXPECT_EQ(results.candidates[1].status, CandidateStatus::kFailed);
  EXPECT_THAT(results.candidates[1].reason, HasSubstr("the server ended"));
}

TEST_F(InTurns, EnvironmentsThatDifferAreMeasuredOneAfterTheOther) {
  Define(
      R"({"candidates":[{"max_num_seqs":11,"allocator":"tcmalloc"}],"strategy":"pair","objectives":["throughput"],"rounds":8})");
  WriteSides("");
  const auto end = RunSweep(request_, progress_);
  if (!end) GTEST_SKIP() << end.error().message;  // no such allocator here
  EXPECT_THAT(progress_.notes, HasSubstr("each trial starts its own"));
  EXPECT_EQ(TrialsRun(), 17u);
}

}  // namespace
}  // namespace pinion::harness
