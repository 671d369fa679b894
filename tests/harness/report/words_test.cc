#include "harness/report/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/report/html.h"
#include "harness/report/page.h"
#include "planted.h"

namespace pinion::harness {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(VerdictWords, NeverClaimMoreThanTheVerdict) {
  Results results = PlantedResults();
  Verdict& verdict = results.verdicts[0];
  for (const Outcome outcome :
       {Outcome::kBaselineBest, Outcome::kNoDifference, Outcome::kTooFewRounds, Outcome::kNoData}) {
    verdict.outcome = outcome;
    verdict.recommended = 0;
    const Words words = InWords(results, verdict);
    EXPECT_EQ(words.gain, "") << Name(outcome);
    EXPECT_THAT(words.headline, Not(HasSubstr("0-1"))) << Name(outcome);
  }
  EXPECT_EQ(InWords(results, verdict).headline,
            "No verdict: the trials of the defaults have no figure for it");
  results.rounds_done = 0;
  EXPECT_EQ(InWords(results, verdict).headline,
            "No verdict: the budget was spent before the first round was whole");
  results.candidates[0].status = CandidateStatus::kFailed;
  EXPECT_EQ(InWords(results, verdict).headline, "No verdict: the defaults could not be measured");
  results.finished = false;
  EXPECT_THAT(InWords(results, verdict).headline, HasSubstr("have not been measured"));
  verdict.floor = 1.5;
  EXPECT_EQ(InWords(results, verdict).floor,
            "differences below a factor of 2.50 cannot be resolved here");
  verdict.floor = 0;
  EXPECT_THAT(InWords(results, verdict).floor, HasSubstr("too few rounds"));
}

TEST(VerdictWords, ARunnerUpWithoutAnIntervalHasNoEstimate) {
  Results results = PlantedResults();
  Verdict& verdict = results.verdicts[0];
  verdict.runner_up = 0;
  verdict.runner_up_ratio = {2, 4.898, 0, std::nullopt};
  EXPECT_EQ(InWords(results, verdict).runner_up,
            "Runner-up: the defaults, compared in 2 rounds, too few for an interval");
  results.candidates[0].status = CandidateStatus::kDropped;
  EXPECT_EQ(InWords(results, verdict).runner_up,
            "Runner-up: the defaults, dropped after 2 rounds, too few for an interval");
}

TEST(VerdictCards, DrawARatioOnlyIfTwoConfigurationsWereCompared) {
  EXPECT_THAT(VerdictCards(PlantedResults()).markup(), HasSubstr("<svg class=\"ratio\""));
  for (const Results& results : {SingleResult(), FailedResults(), MidwayResults()})
    EXPECT_THAT(VerdictCards(results).markup(), Not(HasSubstr("<svg")));
}

TEST(Prose, KeepsUnitsWithTheirNumbersAndMarksCode) {
  EXPECT_EQ(Prose("+1.5 % of 2 GiB, 3 sweeps, 4 msg").markup(),
            "+1.5\u00a0% of 2\u00a0GiB, 3 sweeps, 4 msg");
  EXPECT_EQ(Prose("run `a <b>` now").markup(), "run <code>a &lt;b&gt;</code> now");
  EXPECT_EQ(Prose("one ` alone").markup(), "one ` alone");
}

}  // namespace
}  // namespace pinion::harness
