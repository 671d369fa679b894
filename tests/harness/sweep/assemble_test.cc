#include "harness/sweep/assemble.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "harness/stats/rules.h"
#include "harness/sweep/score.h"

namespace pinion::harness {
namespace {

using testing::Contains;
using testing::HasSubstr;

CandidateRow Row(int id) {
  CandidateRow row;
  row.id = id;
  row.label = id ? "isa=avx2" : "default";
  row.is_baseline = id == 0;
  if (id) row.settings = {{"isa", "avx2"}};
  return row;
}

// Throughput `speed` tokens/s, and a latency of 1/speed s at output_len 11.
TrialRow Trial(int candidate, int round, double speed, int copy = 0) {
  TrialRow row;
  row.candidate = candidate;
  row.copy = copy;
  row.round = round;
  row.ok = true;
  row.seconds = 2;
  row.samples = {
      {"output_tokens_per_s", 0, speed}, {"ttft_s", 1, 0.5 / speed}, {"tpot_s", 1, 0.05 / speed}};
  return row;
}

TrialRow Failed(int candidate, int round) {
  TrialRow row;
  row.candidate = candidate;
  row.round = round;
  row.reason = "crashed";
  row.log_tail = "last words";
  return row;
}

SweepMeta Meta() {
  SweepMeta meta;
  meta.definition.workload.load.shape.output = Lengths::Fixed(11);
  meta.definition.strategy = Strategy::kGrid;  // drops no candidate, so all rounds are complete
  meta.definition.rounds = 6;
  return meta;
}

std::vector<TrialRow> RoundsOf(int rounds, double gain, Phase phase) {
  std::vector<TrialRow> trials;
  for (int round = 1; round <= rounds; ++round) {
    const double drift = 100 * round;  // far more than any gain; pairing must remove it
    trials.push_back(Trial(0, round, drift));
    trials.push_back(Trial(0, round, drift * (1 + 0.001 * round), 1));
    trials.push_back(Trial(1, round, drift * gain));
  }
  for (TrialRow& trial : trials) trial.phase = phase;
  return trials;
}

std::vector<TrialRow> SixRounds(double gain) { return RoundsOf(6, gain, Phase::kRace); }

// One candidate in three objectives: eight fresh rounds can decide.
std::vector<TrialRow> Confirmed(double in_race, double in_fresh_rounds) {
  std::vector<TrialRow> trials = SixRounds(in_race);
  for (const TrialRow& trial : RoundsOf(8, in_fresh_rounds, Phase::kConfirmation))
    trials.push_back(trial);
  return trials;
}

TEST(Assemble, ScoresFollowTheirFormulas) {
  const TrialRow trial = Trial(0, 1, 100);
  EXPECT_DOUBLE_EQ(*LogScore(trial, Objective::kThroughput, 11), std::log(100));
  EXPECT_NEAR(*LogScore(trial, Objective::kLatency, 11), std::log(100), 1e-12);
  EXPECT_NEAR(*LogScore(trial, Objective::kBalanced, 11), std::log(100), 1e-12);
  EXPECT_FALSE(LogScore(TrialRow(), Objective::kThroughput, 11));
}

TEST(Assemble, FindsThePlantedGainThroughTheDrift) {
  const Results results = Assemble(Meta(), {"", 6, true}, {Row(0), Row(1)}, Confirmed(1.1, 1.1));
  const double middle = 1.1 / std::sqrt(std::sqrt(1.004 * 1.005));  // of rounds 4 and 5
  EXPECT_EQ(results.rounds_done, 6);
  ASSERT_EQ(results.verdicts.size(), 3u);
  for (const Verdict& verdict : results.verdicts) {
    EXPECT_EQ(verdict.outcome, Outcome::kWinner) << verdict.objective;
    EXPECT_EQ(verdict.recommended, 1);
    EXPECT_NEAR(verdict.ratio.median, middle, 1e-9) << "to both baseline trials";
  }
  const Comparison* comparison = results.candidates[1].Find(Objective::kThroughput);
  ASSERT_TRUE(comparison);
  EXPECT_EQ(comparison->ratios.size(), 14u);
  EXPECT_NEAR(comparison->ratio.median, middle, 1e-9);
  EXPECT_EQ(results.candidates[0].Find("output_tokens_per_s", 0)->samples.size(), 14u);
  EXPECT_DOUBLE_EQ(results.elapsed_s, 84);
}

TEST(Assemble, SettingsThatAnEngineLacksAreAWarning) {
  std::vector<CandidateRow> rows = {Row(0), Row(1)};
  rows[1].engine = "llama.cpp";
  std::vector<TrialRow> trials = SixRounds(1.1);
  for (TrialRow& trial : trials)
    if (trial.candidate == 1) trial.info.ignored_settings = {"isa=avx2", "kv_cache_dtype=int8"};
  EXPECT_THAT(
      Assemble(Meta(), {"", 6, true}, rows, trials).warnings,
      Contains("llama.cpp has no setting for isa=avx2, kv_cache_dtype=int8, and was measured "
               "without"));
}

TEST(Assemble, TellsInWhichWindowsTheLoadsWereMeasured) {
  std::vector<TrialRow> trials = {Trial(0, 1, 100), Trial(1, 1, 100), Trial(0, 2, 100),
                                  Failed(1, 2)};
  for (size_t i = 0; i < trials.size(); ++i) {
    const double start_s = 0.5 * static_cast<double>(i);
    trials[i].info.windows = {{LoadLevel::AtRate(2), {}, {}, 9, {}},
                              {8, start_s, start_s + 3, 20 + static_cast<int>(i), i > 0}};
    trials[i].info.warm_up_s = start_s;
    trials[i].info.generator = GeneratorPlace{.cpus = {7}, .late_share = 0, .is_apart = i == 0};
  }
  const MeasuredLoads loads = Assemble(Meta(), {"", 6, true}, {Row(0), Row(1)}, trials).loads;
  ASSERT_EQ(loads.each.size(), 2u);
  EXPECT_EQ(loads.each[0].level, LoadLevel(8));
  EXPECT_EQ(loads.each[0].trials, 3u) << "not the one that failed";
  EXPECT_EQ(loads.each[0].by_time, 2u);
  EXPECT_EQ(loads.each[0].start_s, 0.5);
  EXPECT_EQ(loads.each[0].length_s, 3);
  EXPECT_EQ(loads.each[0].requests, 21);
  EXPECT_EQ(loads.each[1].whole, 3u);
  EXPECT_FALSE(loads.each[1].start_s || loads.each[1].by_time);
  EXPECT_EQ(loads.warm_up_s, 0.5);
  EXPECT_EQ(loads.trials, 3u);
  EXPECT_EQ(loads.apart, 1u);
}

TEST(Assemble, TheBaselineIsNotComparedWithItselfButForTheFloor) {
  const Results results = Assemble(Meta(), {"", 6, true}, {Row(0), Row(1)}, SixRounds(1.1));
  EXPECT_GT(results.floors[0], 0.0005);
  EXPECT_LT(results.floors[0], 0.01);
  EXPECT_EQ(results.candidates[0].Find(Objective::kThroughput)->ratio.n, 0u);
}

TEST(Assemble, CandidateThatFailsTwiceInARowIsOutButStaysListed) {
  std::vector<TrialRow> trials = SixRounds(1.1);
  std::erase_if(trials,
                [](const TrialRow& trial) { return trial.candidate == 1 && trial.round > 4; });
  trials.push_back(Failed(1, 5));
  EXPECT_EQ(Assemble(Meta(), {}, {Row(0), Row(1)}, trials).candidates[1].status,
            CandidateStatus::kOk);
  trials.push_back(Failed(1, 6));
  const Results results = Assemble(Meta(), {}, {Row(0), Row(1)}, trials);
  EXPECT_EQ(results.candidates[1].status, CandidateStatus::kFailed);
  EXPECT_EQ(results.candidates[1].reason, "round 6: crashed");
  EXPECT_EQ(results.candidates[1].log_tail, "last words");
  EXPECT_EQ(results.rounds_done, 6);  // of those still alive
  EXPECT_EQ(results.verdicts[0].recommended, 0);
  EXPECT_THAT(results.warnings, Contains(HasSubstr("2 of 18 trials failed")));
}

TEST(Assemble, OfAPairThatLostASideMoreBudgetIsNotAdvised) {
  SweepMeta meta = Meta();
  meta.definition.strategy = Strategy::kPair;
  meta.definition.objectives = {Objective::kThroughput};
  std::vector<TrialRow> trials = SixRounds(1.1);
  std::erase_if(trials, [](const TrialRow& trial) { return trial.round > 2; });
  const auto advice = Contains(HasSubstr("raise the budget"));
  Results results = Assemble(meta, {}, {Row(0), Row(1)}, trials);
  EXPECT_EQ(results.verdicts[0].outcome, Outcome::kTooFewRounds);
  EXPECT_THAT(results.warnings, advice);
  meta.definition.constraints.peak_rss_bytes = 1;
  trials.back().samples.push_back({"peak_rss_bytes", 0, 2});  // of candidate 1
  results = Assemble(meta, {}, {Row(0), Row(1)}, trials);
  EXPECT_EQ(results.candidates[1].status, CandidateStatus::kDisqualified);
  EXPECT_EQ(results.verdicts[0].outcome, Outcome::kTooFewRounds);
  EXPECT_THAT(results.warnings, testing::Not(advice));
}

TEST(Assemble, RoundWithAMissingTrialIsNotWhole) {
  std::vector<TrialRow> trials = SixRounds(1.1);
  trials.pop_back();
  const Results results = Assemble(Meta(), {}, {Row(0), Row(1)}, trials);
  EXPECT_EQ(results.rounds_done, 5);
  EXPECT_EQ(results.verdicts[0].outcome, Outcome::kTooFewRounds);
  EXPECT_FALSE(results.finished);
}

TEST(Assemble, ConfirmationDecidesIfThereIsOne) {
  const Results results = Assemble(Meta(), {"", 6, true}, {Row(0), Row(1)}, Confirmed(1.1, 1.002));
  EXPECT_EQ(results.confirmation_rounds, 8);
  EXPECT_EQ(results.verdicts[0].outcome, Outcome::kNoDifference);
  EXPECT_TRUE(results.verdicts[0].confirmed);
}

TEST(Assemble, TheTablesIntervalsAreThoseOfTheLevelThatDecided) {
  std::vector<TrialRow> trials = SixRounds(1.1);
  for (const TrialRow& trial : RoundsOf(10, 1.1, Phase::kConfirmation)) trials.push_back(trial);
  const Results results = Assemble(Meta(), {"", 6, true}, {Row(0), Row(1)}, trials);
  const Comparison* comparison = results.candidates[1].Find(Objective::kThroughput);
  ASSERT_TRUE(comparison && comparison->ratio.interval);
  EXPECT_EQ(comparison->ratio.n, 10u);
  EXPECT_GE(comparison->ratio.interval->coverage, 1 - kFamilyLevel / 3) << "for three comparisons";
}

TEST(Assemble, ARoundInWhichOneOfTheBaselinesTrialsFailedStillCounts) {
  std::vector<TrialRow> trials = Confirmed(1.1, 1.1);
  std::erase_if(trials, [](const TrialRow& trial) {
    return trial.candidate == 0 && trial.phase == Phase::kConfirmation &&
           (trial.round == 1 ? trial.copy == 0 : trial.round == 2 && trial.copy == 1);
  });
  const Results results = Assemble(Meta(), {"", 6, true}, {Row(0), Row(1)}, trials);
  EXPECT_EQ(results.verdicts[0].ratio.n, 8u);
  EXPECT_EQ(results.verdicts[0].outcome, Outcome::kWinner);
}

TEST(Assemble, MarksDisturbedSamples) {
  std::vector<TrialRow> trials = SixRounds(1.1);
  trials[2].suspect = {"steal 4.0 %"};
  const Results results = Assemble(Meta(), {"", 6, true}, {Row(0), Row(1)}, trials);
  EXPECT_THAT(results.candidates[1].suspect_reasons, testing::ElementsAre("round 1: steal 4.0 %"));
  EXPECT_TRUE(results.candidates[1].series[0].samples[0].suspect);
  EXPECT_THAT(results.warnings, Contains(HasSubstr("other work on the machine disturbed 1 of "
                                                   "18 trials; disturbed trials are marked")));
}

TEST(Assemble, ASearchWithoutALoadIsNotATrialOnFewerTokens) {
  std::vector<TrialRow> trials = SixRounds(1.1);
  trials[0].info.cut = {"search of the SLO's load cut"};
  trials[1].info.cut = {"search of the SLO's load left out", "offline batch cut"};
  const Results results = Assemble(Meta(), {"", 6, true}, {Row(0), Row(1)}, trials);
  EXPECT_THAT(results.warnings, Contains(HasSubstr("1 of 18 trials reached their time limit")));
  EXPECT_THAT(results.warnings, Contains(HasSubstr("2 of 18 trials ended before their search")));
}

TEST(Assemble, WarnsToFreeTheMachineIfMostTrialsAreDisturbed) {
  std::vector<TrialRow> trials = SixRounds(1.1);
  for (TrialRow& trial : trials) trial.suspect = {"steal 4.0 %"};
  const Results results = Assemble(Meta(), {"", 6, true}, {Row(0), Row(1)}, trials);
  EXPECT_THAT(results.warnings.front(), HasSubstr("end it (find it with pinion doctor or top)"));
}

TEST(Assemble, RepetitionReplacesADisturbedTrialAndBothAreKept) {
  TrialRow disturbed = Trial(1, 1, 50), again = Trial(1, 1, 100);
  disturbed.suspect = {"steal 40.0 %"};
  again.attempt = 1;
  const auto scores = [](const std::vector<TrialRow>& trials) {
    return ScoresOf(trials, 1, 0, Objective::kThroughput, 11);
  };
  EXPECT_DOUBLE_EQ(scores({disturbed, again}).at({Phase::kRace, 1}), std::log(100));
  again.suspect = disturbed.suspect;  // then neither is better than the other
  EXPECT_DOUBLE_EQ(scores({disturbed, again}).at({Phase::kRace, 1}),
                   (std::log(50) + std::log(100)) / 2);
  const Results results = Assemble(Meta(), {"", 6, true}, {Row(0), Row(1)}, {disturbed, again});
  EXPECT_EQ(results.candidates[1].series[0].samples.size(), 2u);
}

TEST(Assemble, DroppedCandidateIsMarkedWithTheReason) {
  SweepMeta meta = Meta();
  meta.definition.strategy = Strategy::kRacing;
  meta.definition.objectives = {Objective::kThroughput};
  const Results results = Assemble(meta, {"", 6, true}, {Row(0), Row(1)}, SixRounds(0.8));
  EXPECT_EQ(results.candidates[1].status, CandidateStatus::kDropped);
  EXPECT_THAT(results.candidates[1].reason, HasSubstr("worse than default by more than 2.0 %"));
  EXPECT_EQ(results.verdicts[0].outcome, Outcome::kBaselineBest);
  EXPECT_THAT(results.verdicts[0].tied, testing::IsEmpty());
}

TEST(Assemble, InfeasibleAndUnmeasuredCandidatesAreListed) {
  CandidateRow impossible = Row(1);
  impossible.infeasible = "no such CPU";
  const Results results = Assemble(Meta(), {}, {Row(0), impossible, Row(2)}, {});
  EXPECT_EQ(results.candidates[1].status, CandidateStatus::kInfeasible);
  EXPECT_EQ(results.candidates[1].reason, "no such CPU");
  EXPECT_EQ(results.candidates[2].status, CandidateStatus::kPending);
  EXPECT_EQ(results.verdicts[0].outcome, Outcome::kNoData);
}

}  // namespace
}  // namespace pinion::harness
