// Sweeps in which trials fail or take too long: which of them end, and what is repeated.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/sweep/state.h"
#include "sweep_fixture.h"

namespace pinion::harness {
namespace {

using testing::HasSubstr;
using testing::Not;

class SweepFailures : public SweepTest {};

// Trials are numbered from 1; `bad` decides by $number which of the defaults' go wrong, and how.
std::string NumberedChild(const char* bad) {
  return StrCat(R"sh(#!/bin/sh
cd "${0%/*}"
IFS= read -r request
speed=100
baseline=true
case "$request" in *'"max_num_seqs":11,'*) speed=120; baseline=false ;; esac
echo trial >> trials
number=$(($(wc -l < trials)))
fail() { echo 'pinion: too busy' >&2; exit 1; }
too_slow() {
  echo '{"samples":[],"suspect":[],"info":{},"too_slow":"too slow"}'
  exit 0
}
if $baseline; then
)sh",
                bad, R"sh(
fi
once=0
case "$request" in *'"ceilings":true'*) once=1; echo "$baseline" >> ceilings ;; esac
echo '{"samples":[{"metric":"output_tokens_per_s","concurrency":0,"value":'$speed'},
{"metric":"ttft_s","concurrency":1,"value":0.01},{"metric":"tpot_s","concurrency":1,"value":0.01}],
"suspect":[],"info":{"isa":"fake","threads":1,"once_s":'$once'}}'
)sh");
}

TEST_F(SweepFailures, TemporaryFailuresOfTheDefaultsDoNotEndTheSweep) {
  WriteChild(NumberedChild("[ $number -gt 8 ] && [ $number -lt 13 ] && fail").c_str());
  Define(R"({"candidates":[{"max_num_seqs":11}],"rounds":6})");
  const auto end = RunSweep(request_, progress_);
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(*end, SweepEnd::kDone);
  EXPECT_EQ(Load().verdicts[0].outcome, Outcome::kWinner);
}

TEST_F(SweepFailures, DefaultsThatNoLongerRunEndTheSweepAndResumeTriesThemAgain) {
  WriteChild(NumberedChild("[ $number -gt 12 ] && [ ! -e mended ] && fail").c_str());
  Define(R"({"candidates":[{"max_num_seqs":11}],"rounds":6})");
  const auto end = RunSweep(request_, progress_);
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(*end, SweepEnd::kBaselineFails);
  EXPECT_THAT(progress_.notes, HasSubstr("failed 6 times in a row (too busy); see logs/"));
  EXPECT_FALSE(Load().finished);
  EXPECT_GE(Load().rounds_done, 1);
  ASSERT_TRUE(WriteFile(folder_ / "mended", ""));
  request_.resume = true;
  const auto rest = RunSweep(request_, progress_);
  ASSERT_TRUE(rest) << rest.error().message;
  EXPECT_EQ(*rest, SweepEnd::kDone);
  EXPECT_EQ(Load().verdicts[0].outcome, Outcome::kWinner);
}

TEST_F(SweepFailures, TrialThatOutlivesTheBudgetIsEnded) {
  WriteChild(NumberedChild("[ $number -gt 8 ] && touch hung && exec sleep 60").c_str());
  Define(R"({"candidates":[{"max_num_seqs":11}],"rounds":500,"budget":3,"strategy":"grid"})");
  const auto end = RunSweep(request_, progress_);
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(*end, SweepEnd::kBudget);
  EXPECT_THAT(progress_.notes,
              HasSubstr("the budget of 3 s was spent in the middle of a trial of "));
  for (const Candidate& one : Load().candidates) EXPECT_EQ(one.status, CandidateStatus::kOk);
  // The trial that was ended is not stored, and yet the budget is spent: only a larger one goes on.
  const int begun = progress_.begun;
  request_.resume = true;
  ASSERT_TRUE(RunSweep(request_, progress_));
  EXPECT_EQ(progress_.begun, begun);
  EXPECT_THAT(progress_.notes, HasSubstr("this sweep is finished"));
  Define(R"({"candidates":[{"max_num_seqs":11}],"rounds":500,"budget":2,"strategy":"grid"})");
  ASSERT_TRUE(RunSweep(request_, progress_));
  EXPECT_EQ(progress_.begun, begun);
  EXPECT_EQ(Load().definition.budget_s, 3) << "a smaller budget was written over the sweep's";
  std::filesystem::remove(folder_ / "hung");
  WriteChild(NumberedChild("true").c_str());
  Define(R"({"candidates":[{"max_num_seqs":11}],"rounds":500,"budget":6,"strategy":"grid"})");
  ASSERT_TRUE(RunSweep(request_, progress_));
  EXPECT_GT(progress_.begun, begun);
}

TEST_F(SweepFailures, CeilingsTakeATenthOfASmallBudget) {
  WriteChild(NumberedChild("true").c_str());
  Define(R"({"axes":{"max_num_seqs":[128,11,12,14,15]},"rounds":1,"budget":10})");
  ASSERT_TRUE(RunSweep(request_, progress_));
  const std::string measured = *ReadFile(folder_ / "ceilings");
  EXPECT_THAT(measured, HasSubstr("true")) << "the defaults always measure them";
  EXPECT_LE(Split(measured, '\n').size() - 1, 2u)
      << "no other candidate does once a tenth is spent";
}

TEST_F(SweepFailures, WithoutTheBaselineThereIsNoSweep) {
  WriteChild("#!/bin/sh\necho 'pinion: broken' >&2\nexit 1\n");
  const auto end = RunSweep(request_, progress_);
  ASSERT_FALSE(end);
  EXPECT_THAT(end.error().message, HasSubstr("the defaults failed 2 times in a row (broken)"));
}

// A child that is too slow unless its request matches `enough`.
std::string SlowChild(const char* enough) {
  return NumberedChild(StrCat("case \"$request\" in ", enough, ") ;; *) too_slow ;; esac").c_str());
}

TEST_F(SweepFailures, DefaultsThatNeedMoreTimeGetIt) {
  WriteChild(SlowChild(R"(*'"limit_s":32.0'*)").c_str());
  Define(R"({"candidates":[{"max_num_seqs":11}],"rounds":6,"budget":60})");
  const auto end = RunSweep(request_, progress_);
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(*end, SweepEnd::kDone);
  EXPECT_THAT(progress_.notes,
              HasSubstr("the defaults need more than 8 s per trial; they get 16 s"));
  EXPECT_THAT(progress_.notes, HasSubstr("more than 16 s per trial; they get 32 s"));
  EXPECT_THAT(progress_.notes, Not(HasSubstr("64 s")))
      << "a limit under which trials succeeded is not raised";
  EXPECT_EQ(Load().verdicts[0].outcome, Outcome::kWinner);
  const auto store = Store::Open(request_.folder + "/results.db");
  EXPECT_EQ(ReadTrialLimit(**store)->value_or(0), 32);
}

// A child whose search of the SLO's load ends too early, unless its request matches `enough`.
std::string ChildThatSearches(const char* enough) {
  return StrCat("#!/bin/sh\nIFS= read -r request\necho trial >> \"${0%/*}/trials\"\n",
                "case \"$request\" in ", enough, R"sh() enough=true ;; *) enough=false ;; esac
load=8
case "$request" in *'"max_num_seqs":11,'*) load=12 ;; esac
samples='{"metric":"ttft_s","concurrency":1,"value":0.01}'
cut="\"search of the SLO's load cut\""
if $enough; then
  samples="$samples,{\"metric\":\"slo_load\",\"concurrency\":0,\"value\":$load}"
  cut=
fi
echo '{"samples":['"$samples"'],"suspect":[],"info":{"isa":"fake","threads":1,"cut":['"$cut"']}}'
)sh");
}

// Their limit is 8 s, and may become 20 s.
constexpr char kGoodputSweep[] =
    R"({"candidates":[{"max_num_seqs":11}],"rounds":6,"objectives":["goodput"],"budget":450,
"workload":{"concurrency":[1],"slo":{"ttft":1}}})";

TEST_F(SweepFailures, ASearchThatTheDefaultsDoNotEndGetsMoreTime) {
  WriteChild(ChildThatSearches(R"(*'"limit_s":16.0'*)").c_str());
  Define(kGoodputSweep);
  const auto end = RunSweep(request_, progress_);
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_THAT(progress_.notes,
              HasSubstr("the defaults need more than 8 s per trial; they get 16 s"));
  const Results results = Load();
  EXPECT_EQ(results.verdicts[0].outcome, Outcome::kWinner);
  EXPECT_THAT(results.warnings, testing::Contains(HasSubstr("trials failed")));
  const auto store = Store::Open(request_.folder + "/results.db");
  const auto trials = (*store)->Trials();
  for (const TrialRow& trial : *trials) EXPECT_EQ(trial.ok, !trial.info.has_cut_search());
  EXPECT_THAT(trials->front().reason,
              HasSubstr("search of the SLO's load did not end in its share of a trial of 8 s"));
}

// Rounds that are too few for an interval would say no more.
TEST_F(SweepFailures, ASearchGetsNoMoreTimeThanTheBudgetHasForEnoughRounds) {
  WriteChild(ChildThatSearches("never").c_str());
  Define(kGoodputSweep);
  const auto end = RunSweep(request_, progress_);
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_THAT(progress_.notes, HasSubstr("more than 16 s per trial; they get 20 s"));
  EXPECT_THAT(progress_.notes, Not(HasSubstr("more than 20 s")));
  EXPECT_EQ(Load().verdicts[0].outcome, Outcome::kNoData);
  EXPECT_THAT(Load().warnings, testing::Contains(HasSubstr("ended before their search")));
}

// Other objectives have their figures at any limit.
TEST_F(SweepFailures, ASearchThatNoObjectiveAsksForGetsNoMoreTime) {
  WriteChild(ChildThatSearches("never").c_str());
  Define(R"({"candidates":[{"max_num_seqs":11}],"rounds":6,"objectives":["latency"],"budget":450,
"workload":{"concurrency":[1],"slo":{"ttft":1}}})");
  ASSERT_TRUE(RunSweep(request_, progress_));
  EXPECT_THAT(progress_.notes, Not(HasSubstr("they get")));
}

// A child whose batch does not end in time, which `late` is printed for, unless the request matches
// `whole`.
std::string ChildThatIsLate(const char* whole, const char* late) {
  return StrCat("#!/bin/sh\nIFS= read -r request\necho trial >> \"${0%/*}/trials\"\n",
                "case \"$request\" in ", whole, ") ;;\n*) ", late, " exit 0 ;; esac\n", R"sh(
cut=; speed=100
case "$request" in *'"max_num_seqs":11,'*) cut='"offline batch cut"'; speed=50 ;; esac
echo '{"samples":[{"metric":"output_tokens_per_s","concurrency":0,"value":'$speed'},
{"metric":"ttft_s","concurrency":1,"value":0.01},{"metric":"tpot_s","concurrency":1,"value":0.01}],
"suspect":[],"info":{"isa":"fake","threads":1,"cut":['$cut']}}'
)sh");
}

// No answer was whole, as of a batch whose answers end together; or a few were; or all, but late.
constexpr char kNoAnswer[] =
    R"sh(echo '{"samples":[],"suspect":[],"info":{"cut":["offline batch cut"]},"too_slow":"slow"}';)sh";
constexpr char kFewAnswers[] =
    R"sh(echo '{"samples":[{"metric":"output_tokens_per_s","concurrency":0,"value":20}],
"suspect":[],"info":{"cut":["offline batch cut"]}}';)sh";
constexpr char kLateAnswers[] =
    R"sh(echo '{"samples":[{"metric":"output_tokens_per_s","concurrency":0,"value":20}],
"suspect":[],"info":{"batch_over_s":0.5}}';)sh";

TEST_F(SweepFailures, ABatchThatTheDefaultsDoNotEndShrinks) {
  for (const char* late : {kNoAnswer, kFewAnswers}) {
    std::filesystem::remove_all(request_.folder);
    progress_.notes.clear();
    WriteChild(ChildThatIsLate(R"(*'"batch_prompts":4,'*)", late).c_str());
    Define(R"({"candidates":[{"max_num_seqs":11}],"rounds":6,"budget":60})");
    const auto end = RunSweep(request_, progress_);
    ASSERT_TRUE(end) << end.error().message;
    EXPECT_THAT(progress_.notes,
                HasSubstr("cannot finish an offline batch of 16 prompts in time; reduced to 4"));
    EXPECT_THAT(progress_.notes, Not(HasSubstr("per trial; they get")));
    const Results results = Load();
    EXPECT_EQ(results.batch_prompts, 4);
    EXPECT_EQ(results.definition.workload.load.num_prompts, 16);
    EXPECT_EQ(results.verdicts[0].outcome, Outcome::kBaselineBest)
        << "a candidate whose batch is cut off is slower, and measured all the same";
    EXPECT_THAT(results.warnings, testing::Contains(HasSubstr("has 4 prompts instead of 16")));
    const auto store = Store::Open(request_.folder + "/results.db");
    const auto trials = (*store)->Trials();
    for (const TrialRow& trial : *trials)
      EXPECT_EQ(trial.ok, trial.info.batch_prompts == 4) << trial.reason;
    EXPECT_EQ(ReducedBatch(*trials), 4);
  }
}

TEST_F(SweepFailures, ABatchThatEndsLateIsHalved) {
  WriteChild(ChildThatIsLate(R"(*'"batch_prompts":8,'*)", kLateAnswers).c_str());
  Define(R"({"candidates":[{"max_num_seqs":11}],"rounds":6,"budget":60})");
  ASSERT_TRUE(RunSweep(request_, progress_));
  EXPECT_THAT(progress_.notes, HasSubstr("of 16 prompts in time; reduced to 8"));
  EXPECT_THAT(progress_.notes, Not(HasSubstr("per trial; they get")));
}

TEST_F(SweepFailures, TheSmallestBatchGetsMoreTime) {
  WriteChild(ChildThatIsLate(R"(*'"batch_prompts":4,'*'"limit_s":16.0'*)", kNoAnswer).c_str());
  Define(R"({"candidates":[{"max_num_seqs":11}],"rounds":6,"budget":60})");
  const auto end = RunSweep(request_, progress_);
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_THAT(progress_.notes, HasSubstr("of 16 prompts in time; reduced to 4"));
  EXPECT_THAT(progress_.notes, HasSubstr("more than 8 s per trial; they get 16 s"));
  EXPECT_EQ(Load().verdicts[0].outcome, Outcome::kBaselineBest);
}

TEST_F(SweepFailures, ARequestedLimitLeavesTheBatchAsItIs) {
  WriteChild(ChildThatIsLate("never", kFewAnswers).c_str());
  Define(R"({"candidates":[{"max_num_seqs":11}],"rounds":6,"budget":60,"trial_limit":10})");
  ASSERT_TRUE(RunSweep(request_, progress_));
  EXPECT_THAT(progress_.notes, Not(HasSubstr("reduced to")));
  EXPECT_THAT(Load().warnings, testing::Contains(HasSubstr("measured on fewer tokens")));
}

// A candidate that answers nothing in the time in which the defaults answer is slower, and has no
// fault; one that breaks has one, also if it was too slow before.
TEST_F(SweepFailures, ACandidateWithoutAnAnswerInTimeIsTooSlowAndOneThatBreaksFails) {
  constexpr char kTooSlow[] =
      R"sh(echo '{"samples":[],"suspect":[],"info":{},"too_slow":"no answer"}'; exit 0)sh";
  constexpr char kBroken[] = "echo 'pinion: broken' >&2; exit 1";
  const std::string then_broken = StrCat("[ -e \"${0%/*}/broken\" ] && { ", kBroken,
                                         "; }; touch \"${0%/*}/broken\"; ", kTooSlow);
  for (const auto& [ending, status] :
       {std::pair<std::string, CandidateStatus>(kTooSlow, CandidateStatus::kTooSlow),
        {kBroken, CandidateStatus::kFailed},
        {then_broken, CandidateStatus::kFailed}}) {
    SCOPED_TRACE(ending);
    std::filesystem::remove_all(request_.folder);
    WriteChild(StrCat("#!/bin/sh\nIFS= read -r request\necho trial >> \"${0%/*}/trials\"\n",
                      "case \"$request\" in *'\"max_num_seqs\":11,'*) ", ending, " ;; esac\n", R"sh(
echo '{"samples":[{"metric":"output_tokens_per_s","concurrency":0,"value":100},
{"metric":"ttft_s","concurrency":1,"value":0.01},{"metric":"tpot_s","concurrency":1,"value":0.01}],
"suspect":[],"info":{"isa":"fake","threads":1}}'
)sh")
                   .c_str());
    Define(R"({"candidates":[{"max_num_seqs":11}],"rounds":6,"budget":60,"trial_limit":10})");
    const auto end = RunSweep(request_, progress_);
    ASSERT_TRUE(end) << end.error().message;
    EXPECT_EQ(Load().candidates[1].status, status);
    EXPECT_EQ(Load().candidates[1].trials, 2) << "a third would not tell more";
  }
}

TEST_F(SweepFailures, RequestedLimitStaysAndTemporaryLoadDoesNotEndTheSweep) {
  WriteChild(NumberedChild("[ $number -lt 6 ] && too_slow").c_str());
  Define(R"({"candidates":[{"max_num_seqs":11}],"rounds":6,"budget":60,"trial_limit":10})");
  const auto end = RunSweep(request_, progress_);
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(*end, SweepEnd::kDone);
  EXPECT_THAT(progress_.notes, Not(HasSubstr("they get")));
}

TEST_F(SweepFailures, DefaultsThatAreAlwaysTooSlowEndTheSweep) {
  WriteChild(SlowChild("never").c_str());
  const auto end = RunSweep(request_, progress_);
  ASSERT_FALSE(end);
  EXPECT_THAT(end.error().message, HasSubstr("the defaults failed 6 times in a row (too slow)"));
  EXPECT_EQ(progress_.begun, 6) << "no other candidate is measured first";
}

TEST_F(SweepFailures, ABudgetOfOneTrialIsToldFromDefaultsThatDoNotRun) {
  WriteChild(NumberedChild("true").c_str());
  Define(R"({"candidates":[{"max_num_seqs":11}],"rounds":6,"budget":0.13})");
  const auto end = RunSweep(request_, progress_);
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(*end, SweepEnd::kBudget);
  EXPECT_EQ(TrialsRun(), 1u);
  const Results results = Load();
  EXPECT_EQ(results.verdicts[0].outcome, Outcome::kNoData);
  EXPECT_EQ(results.candidates[0].status, CandidateStatus::kPending) << "they ran";
  EXPECT_THAT(results.warnings, testing::Contains(HasSubstr("raise the budget")));
}

TEST_F(SweepFailures, BudgetInWhichTheDefaultsNeverRunIsAFailure) {
  WriteChild(
      "#!/bin/sh\necho trial >> \"${0%/*}/trials\"\n"
      "echo 'pinion: too long a prompt' >&2\nexit 1\n");
  Define(R"({"candidates":[{"max_num_seqs":11}],"rounds":6,"budget":0.2})");
  const auto end = RunSweep(request_, progress_);
  ASSERT_FALSE(end);
  EXPECT_THAT(end.error().message,
              HasSubstr("had run once (too long a prompt): raise --budget, or see logs/"));
}

}  // namespace
}  // namespace pinion::harness
