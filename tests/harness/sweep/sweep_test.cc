#include "harness/sweep/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "harness/stats/rules.h"
#include "harness/sweep/folder.h"
#include "harness/sweep/provenance.h"
#include "harness/sweep/state.h"
#include "sweep_fixture.h"

namespace pinion::harness {
namespace {

using testing::HasSubstr;

// Stands in for `pinion score` in the divergence check: the KL divergence of each cache type.
constexpr char kScores[] = R"(#!/bin/sh
if [ "$1" = score ]; then
  echo "$*" >> "${0%/*}/scores"
  case "$*" in
    *"--kv-cache-dtype fp8_e5m2"*) kl=0.02 ;;
    *"--kv-cache-dtype fp16"*) echo 'pinion: no room for it' >&2; exit 1 ;;
    *) kl=0.001 ;;
  esac
  echo "{\"kl_nats\":$kl,\"top1_agreement\":0.97}"
  exit 0
fi
)";

TEST_F(SweepTest, LeavesOutSettingsThatChangeTheOutputBeyondTheLimit) {
  WriteChild(StrCat(kScores, std::string_view(kChild).substr(sizeof "#!/bin/sh")).c_str());
  Define(R"({"candidates":[{"kv_cache_dtype":"int8"},{"kv_cache_dtype":"fp8_e5m2"},
             {"kv_cache_dtype":"fp16"},{"kv_cache_dtype":"int8","max_num_seqs":11}],"rounds":6})");
  ASSERT_TRUE(RunSweep(request_, progress_));
  const std::vector<std::string> scored = Split(*ReadFile(folder_ / "scores"), '\n');
  EXPECT_EQ(scored.size(), 3u + 1) << "one per type, however many candidates have it";
  EXPECT_THAT(scored[0], HasSubstr("--reference kv_cache_dtype=auto"));
  const Results results = Load();
  const auto reason = [&](const char* label) {
    for (const Candidate& one : results.candidates)
      if (one.label == label)
        return one.status == CandidateStatus::kInfeasible ? one.reason : std::string();
    return std::string("no such candidate");
  };
  EXPECT_EQ(reason("kv_cache_dtype=int8"), "");
  EXPECT_EQ(reason("kv_cache_dtype=int8 max_num_seqs=11"), "");
  EXPECT_THAT(
      reason("kv_cache_dtype=fp8_e5m2"),
      HasSubstr("0.02 nats of KL divergence per token, 97.0 % the same best token, more than "
                "the limit of 0.01"));
  EXPECT_THAT(reason("kv_cache_dtype=fp16"),
              HasSubstr("cannot be measured: pinion: no room for it"));
  EXPECT_THAT(progress_.notes, HasSubstr("kv_cache_dtype=int8 changes the output by 0.001 nats"));
  EXPECT_THAT(progress_.notes, HasSubstr("left out: kv_cache_dtype=fp8_e5m2"));
}

// The baseline may have a setting of its own, with which everything else is compared.
TEST_F(SweepTest, OutputsAreComparedWithTheBaselinesAndNotWithThoseOfPlainOptions) {
  WriteChild(StrCat(kScores, std::string_view(kChild).substr(sizeof "#!/bin/sh")).c_str());
  Define(R"({"engines":[{"engine":"pinion","settings":{"kv_cache_dtype":"fp8_e5m2"}}],
             "candidates":[{"kv_cache_dtype":"int8"},{"max_num_seqs":11}],"rounds":1})");
  ASSERT_TRUE(RunSweep(request_, progress_));
  const std::vector<std::string> scored = Split(*ReadFile(folder_ / "scores"), '\n');
  EXPECT_EQ(scored.size(), 1u + 1) << "the candidate with another type, and nothing else";
  EXPECT_THAT(scored[0], HasSubstr("--kv-cache-dtype int8"));
  EXPECT_THAT(scored[0], HasSubstr("--reference kv_cache_dtype=fp8_e5m2"));
  for (const Candidate& one : Load().candidates)
    EXPECT_EQ(one.status, CandidateStatus::kOk) << one.label << ": " << one.reason;
}

TEST_F(SweepTest, LeavesOutASettingWhoseComparisonHangs) {
  WriteChild(StrCat("#!/bin/sh\n[ $1 = score ] && { echo > \"${0%/*}/hung\"; sleep 600; }\n",
                    std::string_view(kChild).substr(sizeof "#!/bin/sh"))
                 .c_str());
  Define(R"({"candidates":[{"kv_cache_dtype":"int8"}],"rounds":1,"budget":"20m"})");
  // The clock that a comparison has stopped goes on for the trials.
  request_.interrupted = [this] {
    if (progress_.notes.empty()) return false;
    std::filesystem::remove(folder_ / "hung");
    return false;
  };
  ASSERT_TRUE(RunSweep(request_, progress_));
  const Results results = Load();
  const Candidate& one = results.candidates[1];
  EXPECT_EQ(one.status, CandidateStatus::kInfeasible);
  EXPECT_THAT(one.reason,
              HasSubstr("cannot be measured: the comparison had not ended after 20 min"));
}

TEST_F(SweepTest, TheLimitIsTheDefinitions) {
  WriteChild(StrCat(kScores, std::string_view(kChild).substr(sizeof "#!/bin/sh")).c_str());
  Define(R"({"candidates":[{"kv_cache_dtype":"fp8_e5m2"}],"rounds":1,
             "divergence_limit_nats":0.05})");
  ASSERT_TRUE(RunSweep(request_, progress_));
  EXPECT_EQ(Load().candidates[1].status, CandidateStatus::kOk);
}

TEST_F(SweepTest, FindsTheFasterOneConfirmsItAndKeepsTheFailingOneAsARow) {
  const auto end = RunSweep(request_, progress_);
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(*end, SweepEnd::kDone);
  const Results results = Load();
  EXPECT_TRUE(results.finished);
  EXPECT_EQ(results.calibration_rounds, 3);
  EXPECT_EQ(results.rounds_done, 3);  // the third gives the noise's scale enough to rest on
  EXPECT_EQ(results.confirmation_rounds, static_cast<int>(RoundsFor(3)));
  const Verdict* verdict = results.FindVerdict(Objective::kThroughput);
  EXPECT_EQ(verdict->outcome, Outcome::kWinner);
  EXPECT_EQ(results.Find(verdict->recommended)->label, "max_num_seqs=11");
  EXPECT_TRUE(verdict->confirmed);
  EXPECT_EQ(results.FindVerdict(Objective::kLatency)->outcome, Outcome::kNoDifference);
  EXPECT_EQ(results.candidates[2].status, CandidateStatus::kFailed);
  EXPECT_THAT(results.candidates[2].reason, HasSubstr("unlucky number"));
  // The baseline twice each time, and one more but in the calibration; two failures are not
  // counted.
  EXPECT_EQ(TrialsRun(), 3u * 2 + 3 * 3 + RoundsFor(3) * 3);
}

TEST_F(SweepTest, AnInterruptedSweepGoesOnWithoutRepeatingATrial) {
  request_.interrupted = [&] { return progress_.begun > 7; };
  const auto end = RunSweep(request_, progress_);
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(*end, SweepEnd::kInterrupted);
  const size_t before = TrialsRun();
  EXPECT_FALSE(Load().finished);
  request_.interrupted = [] { return false; };
  request_.resume = true;
  const auto rest = RunSweep(request_, progress_);
  ASSERT_TRUE(rest) << rest.error().message;
  EXPECT_EQ(*rest, SweepEnd::kDone);
  EXPECT_GE(before, 6u);
  // The trial that was interrupted may have left its line before it was killed.
  EXPECT_NEAR(static_cast<double>(TrialsRun()), 3 * 2 + 3 * 3 + RoundsFor(3) * 3.0, 1);
  EXPECT_EQ(Load().verdicts[0].outcome, Outcome::kWinner);
}

TEST_F(SweepTest, SaysFromTheStartThatTheDefaultsAloneAreMeasured) {
  Define(R"({"axes":{},"rounds":1})");
  ASSERT_TRUE(RunSweep(request_, progress_));
  EXPECT_THAT(progress_.notes, HasSubstr("only the defaults are measured"));
  progress_.notes.clear();
  request_.folder = folder_ / "other";
  Define(R"({"candidates":[{"max_num_seqs":11}],"rounds":1})");
  ASSERT_TRUE(RunSweep(request_, progress_));
  EXPECT_THAT(progress_.notes, testing::Not(HasSubstr("only the defaults")));
}

// A child whose candidate is disturbed in every trial.
constexpr char kDisturbed[] = R"(#!/bin/sh
IFS= read -r request
speed=100 suspect=
case "$request" in *'"max_num_seqs":11,'*) speed=120; suspect='"steal 4 %"' ;; esac
echo trial >> "${0%/*}/trials"
echo '{"samples":[{"metric":"output_tokens_per_s","concurrency":0,"value":'$speed'}],
"suspect":['$suspect'],"info":{"isa":"fake","threads":1}}'
)";

// A trial of another day would be compared with the defaults of the day before.
TEST_F(SweepTest, AResumedSweepRepeatsNoDisturbedTrialOfAnEarlierRound) {
  WriteChild(kDisturbed);
  constexpr char kDefinition[] =
      R"({"candidates":[{"max_num_seqs":11}],"objectives":["throughput"],"rounds":6,"budget":)";
  Define(StrCat(kDefinition, "6}").c_str());
  ASSERT_TRUE(RunSweep(request_, progress_));
  const auto trials = [&] { return *(*Store::Open(request_.folder + "/results.db"))->Trials(); };
  const std::vector<TrialRow> before = trials();
  const auto confirmed = [&](int attempt) {
    return std::count_if(before.begin(), before.end(), [&](const TrialRow& trial) {
      return trial.phase == Phase::kConfirmation && trial.candidate == 1 &&
             trial.attempt == attempt;
    });
  };
  ASSERT_GT(confirmed(0), confirmed(1)) << "the budget had no room for some";
  request_.resume = true;
  Define(StrCat(kDefinition, "600}").c_str());
  ASSERT_TRUE(RunSweep(request_, progress_));
  std::set<std::pair<Phase, int>> earlier;
  for (const TrialRow& trial : before) earlier.emplace(trial.phase, trial.round);
  const std::vector<TrialRow> all = trials();
  for (size_t i = before.size(); i < all.size(); ++i)
    EXPECT_FALSE(earlier.contains({all[i].phase, all[i].round}))
        << Name(all[i].phase) << " round " << all[i].round << ", attempt " << all[i].attempt;
}

// A budget without room for a confirmation is spent on rounds of the best alone.
TEST_F(SweepTest, AResumedSweepAddsNoCandidateToAnEarlierRound) {
  constexpr char kDefinition[] =
      R"({"axes":{"max_num_seqs":[11,12,14,15,16,17,18,19,20,21,22,23,24,25]},"rounds":20,"budget":)";
  Define(StrCat(kDefinition, "4.1}").c_str());
  ASSERT_TRUE(RunSweep(request_, progress_));
  const auto trials = [&] { return *(*Store::Open(request_.folder + "/results.db"))->Trials(); };
  const std::vector<TrialRow> before = trials();
  const int last = before.back().round;
  ASSERT_GT(last, 3) << "a round of all, and more of some";
  request_.resume = true;
  Define(StrCat(kDefinition, "600}").c_str());
  ASSERT_TRUE(RunSweep(request_, progress_));
  const std::vector<TrialRow> all = trials();
  ASSERT_GT(all.size(), before.size());
  for (size_t i = before.size(); i < all.size(); ++i)
    EXPECT_TRUE(all[i].phase != Phase::kRace || all[i].round >= last) << all[i].round;
  EXPECT_EQ(Load().verdicts[0].outcome, Outcome::kWinner);
}

TEST_F(SweepTest, AFinishedSweepResumedRunsNothing) {
  ASSERT_TRUE(RunSweep(request_, progress_));
  const size_t before = TrialsRun();
  request_.resume = true;
  ASSERT_TRUE(RunSweep(request_, progress_));
  EXPECT_EQ(TrialsRun(), before);
}

TEST_F(SweepTest, AFolderWithASweepIsRefusedAndAnotherDefinitionToo) {
  ASSERT_TRUE(RunSweep(request_, progress_));
  const auto again = RunSweep(request_, progress_);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kUsage);
  EXPECT_THAT(again.error().message, HasSubstr("--resume"));
  request_.resume = true;
  Define(R"({"candidates":[{"max_num_seqs":12}],"rounds":6})");
  const auto other = RunSweep(request_, progress_);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kUsage);
  EXPECT_THAT(other.error().message, HasSubstr("definition (candidates)"));
}

TEST_F(SweepTest, ASmallBudgetIsToldAndKept) {
  Define(R"({"candidates":[{"max_num_seqs":11}],"rounds":500,"budget":2,
    "strategy":"grid"})");
  const auto end = RunSweep(request_, progress_);
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(*end, SweepEnd::kBudget);
  const double spent_s = Load().elapsed_s, round_s = 3 * TrialClock::kTrialSeconds;
  EXPECT_EQ(spent_s, static_cast<double>(TrialsRun()) * TrialClock::kTrialSeconds);
  EXPECT_LE(spent_s, 2);
  EXPECT_GT(spent_s + round_s, 2) << "another round would have fitted";
  EXPECT_THAT(progress_.notes, HasSubstr("rounds fit the budget"));
}

TEST_F(SweepTest, ProvenanceIsInTheStoreFromTheStartOn) {
  ASSERT_TRUE(RunSweep(request_, progress_));
  const auto store = Store::Open(request_.folder + "/results.db");
  ASSERT_TRUE(store) << store.error().message;
  const auto provenance = (*store)->Meta("provenance");
  ASSERT_TRUE(provenance && *provenance);
  for (const char* key :
       {"engine", "compiler", "model", "kernel", "cgroup", "environment", "mitigations", "hygiene"})
    EXPECT_TRUE((*provenance)->Find(key) && (*provenance)->Find(key)->is_object()) << key;
  EXPECT_THAT((*provenance)->Find("topology_xml")->string(), HasSubstr("<topology"));
  EXPECT_THAT((*provenance)->Find("compiler")->Dump(), HasSubstr(__VERSION__));
  EXPECT_THAT((*provenance)->Find("compiler")->Find("flags")->string(), HasSubstr("-O"));
  EXPECT_TRUE((*provenance)->Find("microcode"));
  EXPECT_EQ((*provenance)->Find("model")->Find("name")->string(), "preset:tiny");
  EXPECT_FALSE(Load().provenance.is_null());
}

TEST(LoadWarning, IsTheDoctorsOfABusyMachine) {
  const auto warning = [](const char* state) {
    return LoadWarning(*Json::Parse(StrCat(
        R"({"hygiene":{"checks":[{"name":"swap","state":"warn","found":"on"},{"name":"load",)",
        R"("found":"load average 9 on 2 CPUs","reason":"something else computes",)",
        R"("fix":"wait","state":")", state, R"("}]}})")));
  };
  EXPECT_EQ(warning("warn"), "load average 9 on 2 CPUs: something else computes; wait");
  EXPECT_EQ(warning("ok"), "");
  EXPECT_EQ(LoadWarning(Json()), "");
}

TEST_F(SweepTest, AModelIsKnownByTheContentsOfItsFiles) {
  ASSERT_TRUE(WriteFile(folder_ / "weights", "abc"));
  const std::string before = ModelFilesJson(folder_).Find("hash")->string();
  EXPECT_EQ(ModelFilesJson(folder_).Find("hash")->string(), before);
  ASSERT_TRUE(WriteFile(folder_ / "weights", "abd"));
  EXPECT_NE(ModelFilesJson(folder_).Find("hash")->string(), before);
  const std::string tokenizer = ModelFilesJson(folder_).Find("tokenizer_hash")->string();
  ASSERT_TRUE(WriteFile(folder_ / "tokenizer.json", "{}"));
  EXPECT_NE(ModelFilesJson(folder_).Find("tokenizer_hash")->string(), tokenizer);
  EXPECT_EQ(ModelFilesJson(folder_ / "weights").Find("files")->array().size(), 1u);  // one file
  EXPECT_TRUE(ModelFilesJson("").is_null());
}

TEST_F(SweepTest, TwoSweepsCannotShareAFolder) {
  const auto held = SweepFolder::Hold(request_.folder);
  ASSERT_TRUE(held);
  const auto end = RunSweep(request_, progress_);
  ASSERT_FALSE(end);
  EXPECT_THAT(end.error().message, HasSubstr("another sweep is running"));
}

TEST(ProgressLine, FitsItsWidthAndKeepsTheTimeLeft) {
  const ProgressLine line = {Phase::kRace, 2, 6, 3, 7, "threads_bind=0-31 isa=avx512_bf16", 310};
  EXPECT_EQ(FormatLine(line, 100),
            "round 2/6  trial 3/7  threads_bind=0-31 isa=avx512_bf16  at most 5 min 10 s left");
  const std::string narrow = FormatLine(line, 60);
  EXPECT_LE(narrow.size(), 60u);
  EXPECT_THAT(narrow, HasSubstr("at most 5 min 10 s left"));
}

TEST_F(SweepTest, OfAPairOneSideThatCannotRunIsRefusedBeforeAnythingIsMeasured) {
  Define(
      R"({"candidates":[{"tensor_parallel":4096}],"strategy":"pair","objectives":["throughput"]})");
  const auto end = RunSweep(request_, progress_);
  ASSERT_FALSE(end);
  EXPECT_THAT(end.error().message, HasSubstr("nothing to compare: tensor_parallel=4096: "));
  EXPECT_EQ(TrialsRun(), 0u);
  EXPECT_FALSE(std::filesystem::exists(request_.folder));
}

}  // namespace
}  // namespace pinion::harness
