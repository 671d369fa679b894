// The advice of a sweep, in the same words in every place.

#include "harness/report/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "harness/report/export.h"
#include "harness/report/html.h"
#include "harness/report/markdown.h"
#include "harness/report/page.h"
#include "harness/report/recommend.h"
#include "harness/report/text_table.h"
#include "harness/report/words.h"
#include "planted.h"

namespace pinion::harness {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

const Estimate kBehind{10, 0.74, 0, Interval{0.70, 0.84, 0.979}};
const Estimate kSlightlyAhead{10, 1.012, 0, Interval{1.004, 1.018, 0.99}};
const Estimate kEven{10, 1.003, 0, Interval{0.985, 1.022, 0.979}};
const Estimate kPerhapsBehind{10, 0.74, 0, Interval{0.51, 1.04, 0.979}};
const Estimate kFewRounds{4, 0.74, 0, std::nullopt};

// One way in which a sweep of one objective can end.
struct Ending {
  const char* what;
  Outcome outcome;
  int recommended, best;
  Estimate best_ratio;
  std::string answer;
  std::optional<int> unconfirmed = std::nullopt;
  bool finished = true;
  std::vector<int> tied = {};
};

const Ending kEndings[] = {
    {"better", Outcome::kWinner, 1, 1, kSlightlyAhead,
     "Use threads_bind=0-1, isa=avx2: 42.0 % [38.4, 45.5] more tokens per second than the "
     "defaults."},
    {"real but small", Outcome::kSmallGain, 0, 1, kSlightlyAhead,
     "Keep the defaults: threads_bind=0-1, isa=avx2 gives a real but small gain of 1.2 % [0.4, "
     "1.8]."},
    {"defaults are best", Outcome::kBaselineBest, 0, 1, kBehind,
     "The defaults are best: threads_bind=0-1, isa=avx2 is 26 % worse (16 to 30 %)."},
    {"all others left early", Outcome::kBaselineBest, 0, 1, kFewRounds,
     "The defaults are best: everything else that was measured is worse."},
    {"the defaults alone", Outcome::kBaselineBest, 0, 0, kFewRounds,
     "Keep the defaults: nothing else was measured."},
    {"no difference found", Outcome::kNoDifference, 0, 1, kEven,
     "Keep the defaults: no difference was found."},
    {"26 % worse, if it is no chance", Outcome::kNoDifference, 0, 1, kPerhapsBehind,
     "Keep the defaults: no difference was proven."},
    {"some worse, some even",
     Outcome::kNoDifference,
     0,
     1,
     kEven,
     "Keep the defaults: 1 of 2 others is worse, and the rest cannot be told from the defaults "
     "(within 2.1 %).",
     std::nullopt,
     true,
     {1}},
    {"too few rounds", Outcome::kTooFewRounds, 0, 1, kFewRounds,
     "Keep the defaults for now: there were too few rounds to tell."},
    {"too few rounds, none ahead", Outcome::kTooFewRounds, 0, 1, kBehind,
     "Keep the defaults: the closest contender was behind, in too few rounds for a verdict."},
    {"no room for the leader", Outcome::kTooFewRounds, 0, 1, kEven,
     "Keep the defaults for now: the budget had no room to confirm threads_bind=nobind, which led.",
     2},
    {"the leader failed", Outcome::kTooFewRounds, 0, 1, kEven,
     "Keep the defaults for now: tensor_parallel=2 led and failed before it was confirmed.", 3},
    {"undecided", Outcome::kNoData, 0, 0, kFewRounds,
     "No verdict: the trials of the defaults have no figure for it."},
    {"not measured yet", Outcome::kNoData, 0, 0, kFewRounds,
     "No verdict yet: the defaults have not been measured.", std::nullopt, false},
};

Results EndedAs(const Ending& ending) {
  Results results = PlantedResults();
  results.definition.objectives = {Objective::kThroughput};
  results.verdicts.resize(1);
  results.finished = ending.finished;
  Verdict& verdict = results.verdicts.front();
  verdict.outcome = ending.outcome;
  verdict.recommended = ending.recommended;
  verdict.best = ending.best;
  verdict.best_ratio = ending.best_ratio;
  verdict.unconfirmed = ending.unconfirmed;
  verdict.confirmed = true;
  verdict.tied = ending.tied;
  return results;
}

// Run it by itself to read all sentences.
TEST(Answer, IsTheSameInEveryOutputForEveryOutcome) {
  for (const Ending& ending : kEndings) {
    SCOPED_TRACE(ending.what);
    const Results results = EndedAs(ending);
    const Verdict& verdict = results.verdicts.front();
    const bool won = ending.outcome == Outcome::kWinner;
    const Words words = InWords(results, verdict);
    const std::string sentence = Sentence(results, verdict);
    std::printf("%-24s%s\n%24s%s\n", ending.what, ending.answer.c_str(), "", sentence.c_str());
    EXPECT_EQ(Answer(results), ending.answer);
    EXPECT_EQ(won ? "Use " + words.headline + ": " + words.gain + " than the defaults."
                  : words.headline + ".",
              ending.answer);
    EXPECT_THAT(sentence, StartsWith(ending.answer.substr(0, ending.answer.size() - 1) + "; "));

    EXPECT_EQ(PageSections(results, "out").at("answer"), Prose(ending.answer).markup());
    EXPECT_THAT(VerdictCards(results).markup(), HasSubstr(">" + Prose(words.headline).markup()));
    EXPECT_THAT(ReportMarkdown(results, "out", {}),
                AllOf(HasSubstr("\n\n" + EscapeMarkdown(ending.answer) + "\n\n"),
                      HasSubstr("**" + EscapeMarkdown(words.headline) + "**")));
    const Json json = ResultsJson(results, "out");
    EXPECT_EQ(json.Find("answer")->string(), ending.answer);
    EXPECT_EQ(json.Find("verdicts")->array()[0].Find("sentence")->string(), sentence);
    const auto profile = ProfileOf(results, Objective::kThroughput, "out");
    ASSERT_TRUE(profile);
    ASSERT_EQ(profile->has_value(), ending.outcome != Outcome::kNoData);
    if (!profile->has_value()) continue;
    EXPECT_EQ((*profile)->evidence.Find("sentence")->string(), sentence);
  }
}

TEST(VerdictWords, TheEvidenceDoesNotRepeatTheHeadline) {
  const auto confidence = [](const char* what) {
    for (const Ending& ending : kEndings)
      if (std::string(ending.what) == what) {
        const Results results = EndedAs(ending);
        return InWords(results, results.verdicts.front()).confidence;
      }
    return std::string("no such ending");
  };
  EXPECT_EQ(confidence("better"), "96 % interval +38.4 to +45.5 % from 6 rounds on fresh prompts");
  EXPECT_EQ(confidence("real but small"),
            "99 % interval +0.4 to +1.8 % from 10 rounds on fresh prompts");
  EXPECT_EQ(confidence("defaults are best"),
            "97 % interval -30 to -16 % from 10 rounds on fresh prompts");
  EXPECT_EQ(confidence("the defaults alone"), "6 rounds");
  EXPECT_EQ(confidence("no difference found"),
            "closest contender, threads_bind=0-1, isa=avx2: +0.3 %; 97 % interval -1.5 to +2.2 % "
            "from 10 rounds on fresh prompts");
  EXPECT_EQ(confidence("too few rounds"),
            "closest contender: threads_bind=0-1, isa=avx2, after 4 rounds, too few for an "
            "interval; a verdict needs 6 fresh rounds");
  EXPECT_EQ(confidence("no room for the leader"), confidence("no difference found"));
  EXPECT_EQ(confidence("undecided"), "");
}

// Outcomes of throughput, latency and balanced, and what is said of all three.
TEST(Answer, IsOneShortSentenceForAnyFindings) {
  struct Found {
    Outcome outcome;
    Estimate best_ratio;
    std::vector<int> tied = {};
  };
  constexpr auto kBest = Outcome::kBaselineBest, kNone = Outcome::kNoDifference,
                 kFew = Outcome::kTooFewRounds, kWins = Outcome::kWinner;
  const Estimate further{10, 0.8, 0, Interval{0.7, 0.84, 0.979}};
  const Found worse{kBest, kBehind}, worse_too{kBest, further}, even{kNone, kEven, {1, 2}},
      some{kNone, kEven, {1}}, other{kNone, kEven, {2}}, perhaps{kNone, kPerhapsBehind, {1, 2}},
      small{Outcome::kSmallGain, kSlightlyAhead}, few{kFew, kFewRounds},
      no_data{Outcome::kNoData, kFewRounds}, won{kWins, kSlightlyAhead};
  const struct {
    std::vector<Found> found;
    const char* answer;
  } rows[] = {
      {{worse, worse, worse},
       "The defaults are best: threads_bind=0-1, isa=avx2 is 26 % worse (16 to 30 %)."},
      {{worse, worse_too, worse}, "The defaults are best for throughput, latency and balance."},
      {{even, even, even}, "Keep the defaults: no difference was found."},
      {{even, perhaps, even},
       "Keep the defaults: nothing better was found for throughput, latency or balance."},
      {{perhaps, perhaps, perhaps}, "Keep the defaults: no difference was proven."},
      {{some, other, some},
       "Keep the defaults: 1 of 2 others is worse, and the rest cannot be told from the defaults "
       "(within 2.1 %)."},
      {{some, even, worse},
       "Keep the defaults: nothing better was found for throughput, latency or balance."},
      {{some, small, worse},
       "Keep the defaults: nothing better was found for throughput or balance; the gain for "
       "latency "
       "is real but small."},
      {{worse, even, no_data},
       "Keep the defaults for now: nothing better was found for throughput or latency; there is no "
       "verdict for balance."},
      {{few, few, few}, "Keep the defaults for now: there were too few rounds to tell."},
      {{few, no_data, few},
       "Keep the defaults for now: there is no verdict for throughput, latency or balance."},
      {{won, worse, won},
       "Use threads_bind=0-1, isa=avx2: 42.0 % more tokens per second and 12.0 % better balance of "
       "throughput and latency than the defaults; for latency keep the defaults."},
      {{won, few, won},
       "Use threads_bind=0-1, isa=avx2: 42.0 % more tokens per second and 12.0 % better balance of "
       "throughput and latency than the defaults; for latency keep the defaults for now."},
  };
  for (const auto& [found, answer] : rows) {
    SCOPED_TRACE(answer);
    Results results = PlantedResults();
    for (size_t i = 0; i < found.size(); ++i) {
      Verdict& verdict = results.verdicts[i];
      verdict.outcome = found[i].outcome;
      verdict.recommended = verdict.outcome == kWins ? 1 : 0;
      verdict.best_ratio = found[i].best_ratio;
      verdict.tied = found[i].tied;
    }
    EXPECT_EQ(Answer(results), answer);
    EXPECT_LT(Answer(results).size(), 180u);
  }
  Results results = PlantedResults();
  results.verdicts.clear();
  EXPECT_EQ(Answer(results), "Keep the defaults for now: nothing was measured yet.");
}

// `pinion compare`: engines A and B.
Results PairOf(Outcome outcome, const Estimate& ratio) {
  Results results = PlantedResults();
  results.definition.objectives = {Objective::kThroughput};
  results.definition.strategy = Strategy::kPair;
  results.candidates.resize(2);
  results.candidates[0].engine = "A";
  results.candidates[1].engine = "B";
  results.verdicts.resize(1);
  Verdict& verdict = results.verdicts.front();
  verdict.outcome = outcome;
  verdict.recommended = outcome == Outcome::kWinner ? 1 : 0;
  verdict.best_ratio = ratio;
  verdict.tied = {1};
  return results;
}

TEST(Answer, OfAPairSaysWhichIsBetterAndRecommendsNothing) {
  const struct {
    Outcome outcome;
    Estimate ratio;
    const char *answer, *change;
  } rows[] = {
      {Outcome::kWinner, kSlightlyAhead, "B gives 1.2 % [0.4, 1.8] more tokens per second than A.",
       ">+1.2 %<"},
      {Outcome::kBaselineBest, kBehind, "B is 26 % worse (16 to 30 %) than A.", ">-26 %<"},
      {Outcome::kNoDifference, kEven, "No difference was found between B and A.", ">+0.3 %<"},
      {Outcome::kNoDifference, kPerhapsBehind, "No difference was proven between B and A.",
       ">-26 %<"},
      {Outcome::kTooFewRounds, kFewRounds, "There were too few rounds to compare B with A.",
       ">no verdict<"},
      {Outcome::kNoData, kFewRounds, "There were too few rounds to compare B with A.",
       ">no verdict<"}};
  for (const auto& [outcome, ratio, answer, change] : rows) {
    SCOPED_TRACE(answer);
    const Results results = PairOf(outcome, ratio);
    EXPECT_EQ(Answer(results), answer);
    EXPECT_THAT(Sentence(results, results.verdicts.front()),
                AllOf(StartsWith(Answer(results).substr(0, Answer(results).size() - 1) + "; "),
                      testing::Not(HasSubstr("the defaults"))));
    EXPECT_THAT(VerdictCards(results).markup(), HasSubstr(change));
    EXPECT_EQ(Support(results), "");
  }
  Results settings = PairOf(Outcome::kBaselineBest, kBehind);
  settings.candidates[0].engine = settings.candidates[1].engine = "pinion";
  EXPECT_EQ(Answer(settings),
            "threads_bind=0-1, isa=avx2 is 26 % worse (16 to 30 %) than the defaults.");
}

TEST(Answer, OfAPairExplainsASideWithoutNumbers) {
  const std::tuple<CandidateStatus, const char*, const char*> rows[] = {
      {CandidateStatus::kFailed, "round 2: crashed", "B failed: round 2: crashed."},
      {CandidateStatus::kTooSlow, "no answer in 8 s", "B was too slow: no answer in 8 s."},
      {CandidateStatus::kInfeasible, "64 ranks", "B was left out: 64 ranks."},
      {CandidateStatus::kPruned, "not measured: too slow", "B was not measured: too slow."},
      {CandidateStatus::kDropped, "worse than A", "B was dropped: worse than A."},
      {CandidateStatus::kDisqualified, "disqualified: its memory",
       "B was disqualified: its memory."},
      {CandidateStatus::kPending, "not measured: no budget", "B was not measured: no budget."}};
  for (const auto& [status, reason, answer] : rows) {
    Results results = PairOf(Outcome::kTooFewRounds, {});
    results.candidates[1].status = status;
    results.candidates[1].reason = reason;
    EXPECT_EQ(Answer(results), answer);
  }
  Results results = PairOf(Outcome::kNoData, {});
  results.candidates[0].status = CandidateStatus::kFailed;
  results.candidates[0].reason = "it broke";
  EXPECT_EQ(Answer(results), "A failed: it broke.");
}

TEST(Answer, SupportStatesConfirmationLeadAndWait) {
  Results results = PlantedResults();
  EXPECT_EQ(Support(results),
            "Confirmed in 6 fresh rounds; nothing else comes within 5 % of it. With 8 clients 95 % "
            "of first tokens arrive within 1.63 s (defaults: 2.32 s).");
  results.verdicts[2].recommended = 2;  // two configurations: their leads are on their cards
  EXPECT_EQ(Support(results), "Confirmed in 6 fresh rounds.");
  for (Verdict& verdict : results.verdicts) verdict.outcome = Outcome::kBaselineBest;
  EXPECT_EQ(Support(results), "");
}

}  // namespace
}  // namespace pinion::harness
