#include "harness/report/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/report/answer.h"
#include "harness/report/words.h"

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

}  // namespace
}  // namespace pinion::harness
