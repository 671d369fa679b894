#include "harness/stats/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace pinion::harness {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Rounds 1, 2, ... at these percentages of the baseline.
ByRound Rounds(const std::vector<double>& percents) {
  ByRound rounds;
  for (double percent : percents)
    rounds[static_cast<int>(rounds.size()) + 1] = std::log1p(percent / 100);
  return rounds;
}

PairedSeries Contestant(int id, const std::vector<double>& percents, int off_default = 1) {
  PairedSeries series;
  series.candidate = id;
  series.name = "c" + std::to_string(id);
  series.log_ratios = Rounds(percents);
  series.settings_off_default = off_default;
  return series;
}

VerdictInput Input(std::vector<PairedSeries> contestants, size_t baseline_rounds = 6) {
  VerdictInput input;
  input.objective = "throughput";
  input.baseline_rounds = baseline_rounds;
  for (size_t i = 0; i < baseline_rounds; ++i)
    input.baseline_log_ratios.push_back(i % 2 ? 0.01 : -0.01);
  input.contestants = std::move(contestants);
  return input;
}

TEST(Verdict, ClearGainWins) {
  const Verdict verdict = Decide(
      Input({Contestant(1, {9, 10, 11, 10, 9, 12}), Contestant(2, {-5, -4, -6, -5, -5, -4})}));
  EXPECT_EQ(verdict.outcome, Outcome::kWinner);
  EXPECT_EQ(verdict.recommended, 1);
  EXPECT_NEAR(verdict.ratio.median, 1.10, 1e-3);
  EXPECT_THAT(verdict.tied, IsEmpty());
  EXPECT_THAT(verdict.sentence, HasSubstr("c1 beats the default by +10.0 % (+9.0 % to +12.0 % at"));
  EXPECT_THAT(verdict.sentence, HasSubstr("not confirmed"));
}

TEST(Verdict, FiveRoundsAreNotEnoughHoweverClear) {
  const Verdict verdict = Decide(Input({Contestant(1, {50, 50, 50, 50, 50})}, 5));
  EXPECT_EQ(verdict.outcome, Outcome::kTooFewRounds);
  EXPECT_EQ(verdict.recommended, 0);
  EXPECT_EQ(verdict.best, 1);
  EXPECT_FALSE(verdict.best_ratio.interval);
  EXPECT_THAT(verdict.sentence, HasSubstr("not enough rounds to tell: 5 of at least 6"));
}

TEST(Verdict, GainWithinTheFloorIsNoDifference) {
  const Verdict verdict = Decide(Input({Contestant(1, {0.3, 0.4, 0.5, 0.4, 0.3, 0.5})}));
  EXPECT_GT(verdict.floor, 0.005);
  EXPECT_EQ(verdict.outcome, Outcome::kNoDifference);
  EXPECT_EQ(verdict.recommended, 0);
  EXPECT_THAT(verdict.tied, ElementsAre(1));
  EXPECT_THAT(verdict.sentence,
              HasSubstr("no difference found, simplest configuration recommended: the default"));
}

TEST(Verdict, IntervalThatIncludesOneIsNoDifference) {
  const Verdict verdict = Decide(Input({Contestant(1, {9, 10, -1, 10, 9, 12})}));
  EXPECT_EQ(verdict.outcome, Outcome::kNoDifference);
}

TEST(Verdict, BaselineIsBestIfAllOthersAreWorse) {
  const Verdict verdict = Decide(Input({Contestant(1, {-9, -10, -11, -10, -9, -12})}));
  EXPECT_EQ(verdict.outcome, Outcome::kBaselineBest);
  EXPECT_EQ(verdict.recommended, 0);
  EXPECT_THAT(verdict.tied, IsEmpty());
}

TEST(Verdict, OneThatIsNotShownToBeWorseKeepsTheDefaultFromBeingCalledBest) {
  const PairedSeries worse = Contestant(1, {-9, -10, -11, -10, -9, -12});
  VerdictInput input = Input({worse, Contestant(2, {0.1, -0.1, 0.2, -0.2, 0.1, -0.1})});
  input.leader = input.baseline;
  input.race_over = true;
  EXPECT_EQ(Decide(input).outcome, Outcome::kNoDifference);
  input.contestants = {worse, Contestant(2, {-8, -9, -8, -9, -8, -9})};
  EXPECT_EQ(Decide(input).outcome, Outcome::kBaselineBest);
}

TEST(Verdict, OneThatIsBehindByLessThanTheFloorIsTied) {
  // Behind the winner in every round: its interval alone would tell the two apart.
  VerdictInput input = Input({Contestant(1, {10, 10.1, 10, 10.1, 10, 10.1}),
                              Contestant(2, {9.7, 9.8, 9.7, 9.8, 9.7, 9.8}, 2)});
  const Verdict verdict = Decide(input);
  ASSERT_GT(verdict.floor, 0.005);
  EXPECT_EQ(verdict.recommended, 1);
  EXPECT_THAT(verdict.tied, ElementsAre(2));
  for (auto& [round, ratio] : input.contestants[1].log_ratios) ratio -= 2 * verdict.floor;
  EXPECT_THAT(Decide(input).tied, IsEmpty());
}

TEST(Verdict, EqualGainsTieAndTheSimplerOneIsRecommended) {
  const Verdict verdict = Decide(Input({Contestant(1, {10.1, 10.2, 9.9, 10.1, 10.0, 10.2}, 2),
                                        Contestant(2, {10.0, 10.1, 10.0, 10.0, 10.1, 10.0}, 1),
                                        Contestant(3, {5, 5, 5.1, 5, 5, 5.2}, 1)}));
  EXPECT_EQ(verdict.outcome, Outcome::kWinner);
  EXPECT_EQ(verdict.best, 1);
  EXPECT_EQ(verdict.recommended, 2);
  EXPECT_THAT(verdict.tied, ElementsAre(1));
}

TEST(Verdict, FreshRoundsOverruleTheRoundsOfTheChoice) {
  PairedSeries lucky = Contestant(1, {9, 10, 11, 10, 9, 12});
  lucky.confirmation = Rounds({0.1, -0.2, 0.3, -0.1, 0.2, -0.3});
  const Verdict overruled = Decide(Input({lucky}));
  EXPECT_EQ(overruled.outcome, Outcome::kNoDifference);
  EXPECT_TRUE(overruled.confirmed);
  lucky.confirmation = Rounds({8, 9, 8, 9, 8, 9});
  const Verdict confirmed = Decide(Input({lucky}));
  EXPECT_EQ(confirmed.outcome, Outcome::kWinner);
  EXPECT_NEAR(confirmed.ratio.median, 1.085, 1e-3);
  EXPECT_THAT(confirmed.sentence, HasSubstr("confirmed in fresh rounds"));
}

TEST(Verdict, CandidateWorseInFreshRoundsIsNotTiedWithTheBaseline) {
  PairedSeries other = Contestant(1, {-18, -2, -17});  // confirmed for another objective
  VerdictInput input = Input({other});
  input.leader = input.baseline;
  input.race_over = true;
  EXPECT_THAT(Decide(input).tied, ElementsAre(1));
  input.contestants[0].confirmation = Rounds({-18, -17, -19, -18, -18, -17});
  EXPECT_THAT(Decide(input).tied, IsEmpty());
}

// The baseline leads this objective's race of 4 rounds; another one's race ended with c1.
VerdictInput ConfirmedForAnother(const std::vector<double>& fresh) {
  PairedSeries other = Contestant(1, {-1.4, -1.2, -1.5, -1.6});
  other.confirmation = Rounds(fresh);
  VerdictInput input = Input({other}, 4);
  input.leader = input.baseline;
  input.race_over = true;
  return input;
}

TEST(Verdict, FreshRoundsOfAnotherObjectiveDecideThisOne) {
  const Verdict verdict = Decide(ConfirmedForAnother({42, 40, 44, 43, 41, 45}));
  EXPECT_EQ(verdict.outcome, Outcome::kWinner);
  EXPECT_EQ(verdict.recommended, 1);
  EXPECT_TRUE(verdict.confirmed);
  EXPECT_EQ(verdict.ratio.n, 6u);
  EXPECT_NEAR(verdict.ratio.median, 1.425, 1e-3);
}

TEST(Verdict, ClosestCandidatesNumbersComeFromAnotherObjectivesFreshRounds) {
  const Verdict verdict = Decide(ConfirmedForAnother({0.4, -0.4, 0.3, -0.2, 0.4, -0.3}));
  EXPECT_EQ(verdict.outcome, Outcome::kNoDifference);
  EXPECT_TRUE(verdict.confirmed);
  EXPECT_EQ(verdict.best_ratio.n, 6u);
  EXPECT_GT(verdict.best_ratio.median, 0.995);
}

TEST(Verdict, AnotherObjectivesWinnerReplacesThisOnesOnlyIfItBeatsIt) {
  PairedSeries own = Contestant(1, {9, 10, 11, 10, 9, 12}), other = Contestant(2, {1, 2, 1, 2});
  own.confirmation = Rounds({10, 11, 10, 11, 10, 11});
  other.confirmation = Rounds({10.2, 11.1, 10.3, 11.2, 10.1, 11.3});
  VerdictInput input = Input({own, other});
  input.leader = 1;
  const Verdict level = Decide(input);
  EXPECT_EQ(level.recommended, 1);
  EXPECT_THAT(level.tied, ElementsAre(2)) << "by the fresh rounds, not by those of the race";
  input.contestants[1].confirmation = Rounds({30, 31, 30, 31, 30, 31});
  const Verdict beaten = Decide(input);
  EXPECT_EQ(beaten.recommended, 2);
  EXPECT_EQ(beaten.best, 2);
  EXPECT_THAT(beaten.tied, IsEmpty());
}

// Several candidates with fresh rounds, none better: a winner by chance in at most 5 % of sweeps,
// by the intervals alone.
TEST(Verdict, SeveralConfirmedCandidatesRarelyWinByChance) {
  constexpr int kVerdicts = 2000;
  std::mt19937 random(3);
  std::normal_distribution<double> noise(0, 2);  // percent
  const auto draw = [&](int n) {
    std::vector<double> percents;
    for (int i = 0; i < n; ++i) percents.push_back(noise(random));
    return percents;
  };
  for (const int rounds : {6, 10}) {
    int crowned = 0;
    for (int i = 0; i < kVerdicts; ++i) {
      VerdictInput input = Input({});
      input.baseline_log_ratios.clear();  // no floor
      for (int id = 1; id <= 5; ++id) {
        input.contestants.push_back(Contestant(id, draw(4)));
        input.contestants.back().confirmation = Rounds(draw(rounds));
      }
      input.leader = 1 + i % 5;
      crowned += Decide(input).outcome == Outcome::kWinner ? 1 : 0;
    }
    EXPECT_LE(crowned, kVerdicts * 0.05 + 1.64 * std::sqrt(kVerdicts * 0.05 * 0.95)) << rounds;
  }
}

TEST(Verdict, BestOfManyNeedsMoreRoundsThanASingleCandidate) {
  std::vector<PairedSeries> many;
  for (int id = 1; id <= 12; ++id) many.push_back(Contestant(id, {0, 1, -1, 0, 1, -1}));
  many[3] = Contestant(4, {9, 10, 11, 10, 9, 12});
  EXPECT_EQ(Decide(Input({many[3]})).outcome, Outcome::kWinner);
  const Verdict verdict = Decide(Input(many));
  EXPECT_EQ(verdict.outcome, Outcome::kTooFewRounds);
  EXPECT_THAT(verdict.sentence, HasSubstr("6 of at least 8"));
}

TEST(Verdict, GivesNoVerdictWithoutTheBaseline) {
  EXPECT_EQ(Decide(Input({}, 0)).outcome, Outcome::kNoData);
  EXPECT_EQ(Decide(Input({}, 6)).outcome, Outcome::kBaselineBest);
}

TEST(Verdict, ComparesRoundByRoundNotByPosition) {
  // Both miss a different round; only rounds 2 to 6 are common, too few for an interval.
  PairedSeries first = Contestant(1, {10, 11, 12, 13, 14, 15, 16});
  PairedSeries second = first;
  second.candidate = 2;
  first.log_ratios.erase(1);
  second.log_ratios.erase(7);
  const Verdict verdict = Decide(Input({first, second}, 7));
  EXPECT_EQ(verdict.recommended, 1);
  EXPECT_THAT(verdict.tied, ElementsAre(2));
}

TEST(EstimateRatio, MergesNeighboursOfALongDriftingSeries) {
  std::vector<double> drifting;
  for (int i = 0; i < 24; ++i) drifting.push_back(0.01 * i);
  EXPECT_EQ(EstimateRatio(drifting).n, 12u);
  EXPECT_EQ(EstimateRatio(std::vector<double>(drifting.begin(), drifting.begin() + 19)).n, 19u);
}

// |median| of every series of `n` draws with replacement.
std::vector<double> AllMedians(const std::vector<double>& values, size_t n) {
  size_t count = 1;
  for (size_t i = 0; i < n; ++i) count *= values.size();
  std::vector<double> medians, draw(n);
  for (size_t series = 0; series < count; ++series) {
    size_t rest = series;
    for (double& value : draw) {
      value = values[rest % values.size()];
      rest /= values.size();
    }
    medians.push_back(std::abs(Median(draw)));
  }
  return medians;
}

// Here the distribution is counted out. The code draws 1,000 times from it, whose 95th percentile
// lies between the exact ones of 0.95 +- 3 sqrt(0.95 x 0.05 / 1000).
TEST(NoiseFloor, IsThe95thPercentileOfTheSizeOfTheMedian) {
  for (const auto& [n, values] : {std::pair<size_t, int>{1, 1001}, {2, 201}, {3, 61}}) {
    std::vector<double> differences;
    for (int i = 0; i < values; ++i) differences.push_back(0.05 * std::sin(i * 2.4));
    const std::vector<double> medians = AllMedians(differences, n);
    const double floor = std::log1p(NoiseFloor(differences, n));
    EXPECT_GE(floor, Quantile(medians, 0.929)) << n;
    EXPECT_LE(floor, Quantile(medians, 0.971)) << n;
  }
}

TEST(NoiseFloor, ShrinksWithRoundsAndGrowsWithNoise) {
  std::vector<double> calm, wild;
  for (int i = 0; i < 12; ++i) {
    calm.push_back(0.01 * std::sin(i * 2.4));
    wild.push_back(0.10 * std::sin(i * 2.4));
  }
  EXPECT_LT(NoiseFloor(calm, 20), NoiseFloor(calm, 6));
  EXPECT_GT(NoiseFloor(wild, 6), 5 * NoiseFloor(calm, 6));
  EXPECT_EQ(NoiseFloor(std::vector<double>{0.1, 0.2}, 6), 0);
}

}  // namespace
}  // namespace pinion::harness
