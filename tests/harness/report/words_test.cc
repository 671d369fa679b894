#include "harness/report/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/report/figures.h"
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

TEST(VerdictWords, PrintNoIntervalIfThereIsNone) {
  EXPECT_EQ(FormatChangeInterval({4, 1.1, 0, std::nullopt}), "no interval (n = 4)");
  EXPECT_EQ(FormatChangeInterval({6, 1.1, 0, Interval{1.05, 1.12, 0.96}}), "+5.0 to +12.0 %");
}

TEST(Figures, KeepThreeDigitsInAUnitThatFits) {
  EXPECT_EQ(FormatFigure("s", 0.02134), "21.3 ms");
  EXPECT_EQ(FormatFigure("s", 0.0000141), "14.1 µs");
  EXPECT_EQ(FormatChange(158.3), "158 times");
  EXPECT_EQ(FormatFigure("s", 1.5), "1.50 s");
  EXPECT_EQ(FormatFigure("tokens/s", 1234.5), "1234 tokens/s");
  EXPECT_EQ(FormatFigure("tokens/s", 0), "0 tokens/s");
  EXPECT_EQ(FormatRange("s", 0.0213, 0.0226), "21.3 to 22.6 ms");
  EXPECT_EQ(FormatRange("s", 0.95, 1.5), "950 ms to 1.50 s");
  EXPECT_EQ(FormatRange("load", 2.5, 4), "2.50 to 4.00");
  EXPECT_EQ(FormatRange("price", 0.5, 120), "0.500 to 120");
  EXPECT_EQ(FormatSeconds(500), "8 min 20 s");
  EXPECT_EQ(FormatFigure("tokens/s", 9876), "9876 tokens/s");
  EXPECT_EQ(FormatRange("tokens/s", 91796, 1280550.4), "91,796 to 1,280,550 tokens/s");
}

TEST(Figures, ShowNoMoreDigitsThanTheirIntervalSupports) {
  const Estimate wide{13, 1.893, 0, Interval{1.523, 1.992, 0.97}};
  EXPECT_EQ(FormatChange(wide), "+89 %");
  EXPECT_EQ(FormatChangeInterval(wide), "+52 to +99 %");
  EXPECT_EQ(FormatGain(wide), "89 % [52, 99]");
  EXPECT_EQ(FormatGain({13, 1.042, 0, Interval{1.031, 1.055, 0.97}}), "4.2 % [3.1, 5.5]");
  EXPECT_EQ(FormatGain({4, 1.042, 0, std::nullopt}), "4.2 %");
  EXPECT_EQ(FormatChangeInterval({13, 9, 0, Interval{5, 21.2, 0.97}}), "+400 % to 21.2 times");
}

}  // namespace
}  // namespace pinion::harness
