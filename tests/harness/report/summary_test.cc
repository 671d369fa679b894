#include "harness/report/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/report/answer.h"
#include "harness/report/words.h"
#include "planted.h"

namespace pinion::harness {
namespace {

using testing::HasSubstr;

TEST(Summary, GivesTheReportsAnswerAndHeadlinesForEveryOutcome) {
  Results results;
  results.model = "preset:tiny";
  results.finished = true;
  results.definition.objectives = {Objective::kThroughput};
  results.candidates.resize(2);
  results.candidates[0].is_baseline = true;
  results.candidates[1].id = 1;
  results.candidates[1].settings = {{"isa", "avx2"}};
  results.verdicts.resize(1);
  Verdict& verdict = results.verdicts.front();
  verdict.objective = "throughput";
  verdict.best = 1;
  verdict.best_ratio = verdict.ratio = {10, 0.74, 0, Interval{0.70, 0.84, 0.979}};
  for (const Outcome outcome : {Outcome::kSmallGain, Outcome::kBaselineBest, Outcome::kNoDifference,
                                Outcome::kTooFewRounds, Outcome::kNoData, Outcome::kWinner}) {
    verdict.outcome = outcome;
    verdict.recommended = outcome == Outcome::kWinner ? 1 : 0;
    const std::string text = SummaryText(results, "out");
    EXPECT_THAT(text, HasSubstr("\n\n" + Answer(results) + "\n\n")) << Name(outcome);
    EXPECT_THAT(text, HasSubstr("\nthroughput  " + InWords(results, verdict).headline + "\n"))
        << Name(outcome);
  }
}

TEST(Summary, NamesConfigurationsWithoutFiguresAndWhy) {
  Results results = NoDifferenceResults();
  results.verdicts.resize(1);
  results.verdicts[0].tied = {1};
  results.candidates.resize(4);
  results.candidates[3].label = "isa=avx2";
  results.candidates[3].comparisons.clear();
  results.candidates[3].reason = "round 2: no answer";
  for (const auto& [status, line, others] :
       {std::tuple(CandidateStatus::kTooSlow, "\ntoo slow    isa=avx2: round 2: no answer\n",
                   "2 of 3 others are worse"),
        std::tuple(CandidateStatus::kFailed, "\nfailed      isa=avx2: round 2: no answer\n",
                   "1 of 2 others is worse")}) {
    results.candidates[3].status = status;
    EXPECT_THAT(SummaryText(results, "out"), HasSubstr(line));
    EXPECT_THAT(InWords(results, results.verdicts[0]).headline, HasSubstr(others));
  }
}

}  // namespace
}  // namespace pinion::harness
