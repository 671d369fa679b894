#include "harness/stats/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "harness/stats/rules.h"

namespace pinion::harness {
namespace {

using testing::ElementsAre;
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
  series.log_ratios = Rounds(percents);
  series.settings_off_default = off_default;
  return series;
}

// A candidate that was confirmed in rounds of these percentages.
PairedSeries Confirmed(int id, const std::vector<double>& percents, int off_default = 1) {
  PairedSeries series = Contestant(id, {1, 2, 1}, off_default);
  series.confirmation = Rounds(percents);
  return series;
}

// `percent` in each of n rounds, a tenth of a percent more in every second one.
std::vector<double> About(double percent, size_t n = 10) {
  std::vector<double> percents;
  for (size_t i = 0; i < n; ++i) percents.push_back(percent + (i % 2 ? 0.1 : 0));
  return percents;
}

VerdictInput Input(std::vector<PairedSeries> contestants, size_t baseline_rounds = 6) {
  VerdictInput input;
  input.objective = "throughput";
  input.baseline_rounds = baseline_rounds;
  for (size_t i = 0; i < baseline_rounds; ++i)
    input.baseline_log_ratios.push_back(i % 2 ? 0.01 : -0.01);
  input.contestants = std::move(contestants);
  if (!input.contestants.empty()) input.leader = input.contestants.front().candidate;
  return input;
}

Verdict One(const VerdictInput& input) { return Decide({input}).front(); }

// A race that is over with the baseline in the lead.
VerdictInput BaselineLeads(std::vector<PairedSeries> contestants) {
  VerdictInput input = Input(std::move(contestants));
  input.leader = input.baseline;
  input.race_over = true;
  return input;
}

TEST(Verdict, AClearGainInFreshRoundsWins) {
  const Verdict verdict =
      One(Input({Confirmed(1, {9, 10, 11, 10, 9, 12, 10}), Confirmed(2, About(-5, 7))}));
  EXPECT_EQ(verdict.outcome, Outcome::kWinner);
  EXPECT_EQ(verdict.recommended, 1);
  EXPECT_NEAR(verdict.ratio.median, 1.10, 1e-3);
  EXPECT_THAT(verdict.tied, IsEmpty());
  ASSERT_TRUE(verdict.ratio.interval);
  EXPECT_NEAR(verdict.ratio.interval->low, 1.09, 1e-3);
  EXPECT_NEAR(verdict.ratio.interval->high, 1.12, 1e-3);
  EXPECT_TRUE(verdict.confirmed);
  EXPECT_EQ(verdict.runner_up, 2);
}

TEST(Verdict, WithoutFreshRoundsNothingIsRecommendedHoweverClear) {
  const Verdict verdict = One(Input({Contestant(1, About(50, 20))}, 20));
  EXPECT_EQ(verdict.outcome, Outcome::kTooFewRounds);
  EXPECT_EQ(verdict.recommended, 0);
  EXPECT_EQ(verdict.best, 1);
}

TEST(Verdict, FiveFreshRoundsAreNotEnough) {
  const Verdict verdict = One(Input({Confirmed(1, About(50, 5))}));
  EXPECT_EQ(verdict.outcome, Outcome::kTooFewRounds);
  EXPECT_FALSE(verdict.best_ratio.interval);
  EXPECT_EQ(verdict.rounds, 5u);
  EXPECT_FALSE(verdict.unconfirmed);
}

TEST(Verdict, AGainBelowEpsilonIsRealButSmall) {
  VerdictInput input = Input({Confirmed(1, About(1.5))});
  for (double& noise : input.baseline_log_ratios) noise /= 10;
  const Verdict verdict = One(input);
  EXPECT_LT(verdict.floor, 0.01);
  EXPECT_EQ(verdict.outcome, Outcome::kSmallGain);
  EXPECT_EQ(verdict.recommended, 0);
  EXPECT_EQ(verdict.best, 1);
  input.epsilon = 0.01;
  EXPECT_EQ(One(input).outcome, Outcome::kWinner);
}

TEST(Verdict, AGainWithinTheFloorIsRealButSmallToo) {
  VerdictInput input = Input({Confirmed(1, About(3))});
  for (double& noise : input.baseline_log_ratios) noise *= 5;
  const Verdict verdict = One(input);
  EXPECT_GT(verdict.floor, 0.031);
  EXPECT_EQ(verdict.outcome, Outcome::kSmallGain);
}

TEST(Verdict, AProvenSmallGainIsNamedRatherThanALargerOneThatMayBeChance) {
  VerdictInput input =
      Input({Confirmed(1, {30, -20, 9, -9, 20, -10, 8, -8, 9, 10}), Confirmed(2, About(1.5))});
  for (double& noise : input.baseline_log_ratios) noise /= 10;
  const Verdict verdict = One(input);
  EXPECT_EQ(verdict.outcome, Outcome::kSmallGain);
  EXPECT_EQ(verdict.best, 2);
}

TEST(Verdict, AnIntervalThatIncludesOneIsNotADifference) {
  const Verdict verdict = One(Input({Confirmed(1, {9, 10, -1, 10, 9, 12})}));
  EXPECT_EQ(verdict.outcome, Outcome::kNoDifference);
  EXPECT_THAT(verdict.tied, ElementsAre(1));
  EXPECT_EQ(verdict.recommended, 0);
}

// It left the race after four rounds, too few for an interval; the race knows that it is behind.
TEST(Verdict, BaselineIsBestIfTheRestIsFarBehind) {
  PairedSeries few = Contestant(2, About(-40, 4));
  few.to_baseline = Race::Gap{std::log(0.6), std::log(0.5), std::log(0.7), 4};
  const Verdict verdict = One(Input({Confirmed(1, About(-9)), few}));
  EXPECT_EQ(verdict.outcome, Outcome::kBaselineBest);
  EXPECT_THAT(verdict.tied, IsEmpty());
  few.to_baseline->high = 0.05;  // as far as the race knows it may be better
  const Verdict unsure = One(Input({Confirmed(1, About(-9)), few}));
  EXPECT_EQ(unsure.outcome, Outcome::kNoDifference);
  EXPECT_THAT(unsure.tied, ElementsAre(2));
}

// Its interval comes within the floor of the baseline, but its estimate does not.
TEST(Verdict, AContenderThatIsClearlyWorseIsAFindingOnANoisyMachine) {
  VerdictInput input = Input({Confirmed(1, {-30, -28, -27, -26, -26, -26, -24, -22, -17, -16})});
  input.baseline_log_ratios = {0.3, -0.3, 0.28, -0.28, 0.25, -0.25, 0.2, -0.2, 0.1, -0.1};
  const Verdict verdict = One(input);
  ASSERT_TRUE(verdict.best_ratio.interval);
  ASSERT_GT(verdict.best_ratio.interval->high * (1 + verdict.floor), 1);
  EXPECT_EQ(verdict.outcome, Outcome::kBaselineBest);
  EXPECT_THAT(verdict.tied, IsEmpty());
  for (double& noise : input.baseline_log_ratios) noise *= 4;
  ASSERT_GT(One(input).floor, 0.4);
  EXPECT_EQ(One(input).outcome, Outcome::kNoDifference);
}

TEST(Verdict, BaselineIsBestIfAllOthersAreWorse) {
  EXPECT_EQ(One(Input({Confirmed(1, About(-9))})).outcome, Outcome::kBaselineBest);
  const PairedSeries worse = Contestant(1, About(-9));
  const Verdict verdict = One(BaselineLeads({worse, Contestant(2, About(-8))}));
  EXPECT_EQ(verdict.outcome, Outcome::kBaselineBest);
  EXPECT_THAT(verdict.tied, IsEmpty());
  EXPECT_EQ(One(BaselineLeads({worse, Contestant(2, {0.1, -0.1, 0.2, -0.2, 0.1, -0.1})})).outcome,
            Outcome::kNoDifference);
}

TEST(Verdict, OneThatIsBehindByLessThanTheFloorIsTied) {
  // Behind the winner in every round: its interval alone would tell the two apart.
  VerdictInput input = Input({Confirmed(1, About(10)), Confirmed(2, About(9.7), 2)});
  const Verdict verdict = One(input);
  ASSERT_GT(verdict.floor, 0.005);
  EXPECT_EQ(verdict.recommended, 1);
  EXPECT_THAT(verdict.tied, ElementsAre(2));
  for (auto& [round, ratio] : input.contestants[1].confirmation) ratio -= 2 * verdict.floor;
  EXPECT_THAT(One(input).tied, IsEmpty());
}

TEST(Verdict, EqualGainsTieAndTheSimplerOneIsRecommended) {
  const Verdict verdict = One(
      Input({Confirmed(1, About(10.1), 2), Confirmed(2, About(10), 1), Confirmed(3, About(5), 1)}));
  EXPECT_EQ(verdict.outcome, Outcome::kWinner);
  EXPECT_EQ(verdict.recommended, 2);
  EXPECT_THAT(verdict.tied, ElementsAre(1));
}

TEST(Verdict, TheRunnerUpHasItsIntervalAgainstTheWinner) {
  const Verdict verdict =
      One(Input({Confirmed(1, About(20)), Confirmed(2, About(10)), Confirmed(3, About(5))}));
  EXPECT_EQ(verdict.recommended, 1);
  EXPECT_EQ(verdict.runner_up, 2);
  EXPECT_NEAR(verdict.runner_up_ratio.median, 1.2 / 1.1, 1e-3);
  ASSERT_TRUE(verdict.runner_up_ratio.interval);
  EXPECT_GT(verdict.runner_up_ratio.interval->low, 1.08);
}

TEST(Verdict, ARunnerUpWithTooFewRoundsHasNoInterval) {
  const Verdict verdict = One(Input({Confirmed(1, About(20)), Contestant(2, About(-70, 2))}));
  EXPECT_EQ(verdict.runner_up, 2);
  EXPECT_EQ(verdict.runner_up_ratio.n, 2u);
  EXPECT_FALSE(verdict.runner_up_ratio.interval);
}

TEST(Verdict, FreshRoundsOverruleTheRoundsOfTheChoice) {
  PairedSeries lucky = Contestant(1, {9, 10, 11, 10, 9, 12});
  lucky.confirmation = Rounds({0.1, -0.2, 0.3, -0.1, 0.2, -0.3});
  EXPECT_EQ(One(Input({lucky})).outcome, Outcome::kNoDifference);
  lucky.confirmation = Rounds(About(8, 6));
  const Verdict confirmed = One(Input({lucky}));
  EXPECT_EQ(confirmed.outcome, Outcome::kWinner);
  EXPECT_NEAR(confirmed.ratio.median, 1.0805, 1e-3);
}

TEST(Verdict, ACandidateOfAnotherObjectiveDecidesThisOne) {
  // The baseline leads this objective's race of a few rounds; another one's race ended with c1.
  PairedSeries other = Contestant(1, {-1.4, -1.2, -1.5, -1.6});
  other.confirmation = Rounds(About(42));
  const Verdict verdict = One(BaselineLeads({other}));
  EXPECT_EQ(verdict.outcome, Outcome::kWinner);
  EXPECT_EQ(verdict.recommended, 1);
  EXPECT_EQ(verdict.ratio.n, 10u);
}

TEST(Verdict, AnUnconfirmedLeaderLeavesItsObjectiveOpen) {
  VerdictInput input = Input({Contestant(1, About(30, 4)), Confirmed(2, About(0))});
  EXPECT_EQ(One(input).outcome, Outcome::kTooFewRounds);
  EXPECT_EQ(One(input).unconfirmed, 1);
  input.contestants[1].confirmation = Rounds(About(10));
  EXPECT_EQ(One(input).recommended, 2);
  EXPECT_FALSE(One(input).unconfirmed);
}

TEST(Verdict, ALeaderThatFailedBeforeItWasConfirmedLeavesItsObjectiveOpen) {
  VerdictInput input = Input({Confirmed(2, About(0))});
  input.leader = 1;
  EXPECT_EQ(One(input).outcome, Outcome::kTooFewRounds);
  EXPECT_EQ(One(input).unconfirmed, 1);
}

// Two objectives of three candidates: six comparisons, of which the first is held to 3.2 % / 6.
TEST(Verdict, TheLevelIsCorrectedForAllComparisons) {
  const auto input = [](double first, size_t rounds) {
    return Input({Confirmed(1, About(first, rounds)), Confirmed(2, About(-0.05, rounds)),
                  Confirmed(3, About(-0.05, rounds))});
  };
  EXPECT_EQ(One(input(20, 8)).outcome, Outcome::kWinner);
  const std::vector<Verdict> both = Decide({input(20, 8), input(-0.05, 8)});
  EXPECT_EQ(both[0].comparisons, 6u);
  EXPECT_EQ(both[0].outcome, Outcome::kTooFewRounds);
  EXPECT_EQ(both[0].rounds, 8u);
  const std::vector<Verdict> longer = Decide({input(20, 9), input(-0.05, 9)});
  EXPECT_EQ(longer[0].outcome, Outcome::kWinner);
  EXPECT_GT(longer[0].ratio.interval->coverage, 1 - 0.032 / 6);
}

// Confirmed candidates none of which is better, in two objectives: something is recommended by
// chance in at most kFamilyLevel of sweeps, by the intervals alone.
TEST(Verdict, SeveralConfirmedCandidatesRarelyWinByChance) {
  constexpr int kSweeps = 2000;
  std::mt19937 random(3);
  std::normal_distribution<double> noise(0, 8);  // percent: far beyond epsilon
  const auto draw = [&](size_t n) {
    std::vector<double> percents;
    for (size_t i = 0; i < n; ++i) percents.push_back(noise(random));
    return percents;
  };
  for (const size_t rounds : {8, 12}) {
    int crowned = 0;
    for (int i = 0; i < kSweeps; ++i) {
      std::vector<VerdictInput> inputs;
      for (int objective = 0; objective < 2; ++objective) {
        inputs.push_back(Input(
            {Confirmed(1, draw(rounds)), Confirmed(2, draw(rounds)), Confirmed(3, draw(rounds))}));
        inputs.back().baseline_log_ratios.clear();  // no floor
      }
      const std::vector<Verdict> verdicts = Decide(inputs);
      crowned += std::any_of(verdicts.begin(), verdicts.end(), [](const Verdict& verdict) {
        return verdict.outcome == Outcome::kWinner;
      });
    }
    EXPECT_LE(crowned, kSweeps * kFamilyLevel +
                           1.64 * std::sqrt(kSweeps * kFamilyLevel * (1 - kFamilyLevel)))
        << rounds;
  }
}

TEST(Verdict, GivesNoVerdictWithoutTheBaseline) {
  EXPECT_EQ(One(Input({}, 0)).outcome, Outcome::kNoData);
  EXPECT_EQ(One(Input({}, 6)).outcome, Outcome::kBaselineBest);
}

TEST(Verdict, ComparesRoundByRoundNotByPosition) {
  // Both miss a different round; only rounds 2 to 7 are common.
  PairedSeries first = Confirmed(1, {10, 11, 12, 13, 14, 15, 16, 17});
  PairedSeries second = first;
  second.candidate = 2;
  first.confirmation.erase(1);
  second.confirmation.erase(8);
  const Verdict verdict = One(Input({first, second}, 7));
  EXPECT_EQ(verdict.runner_up_ratio.n, 6u);
  EXPECT_NEAR(verdict.runner_up_ratio.median, 1, 1e-12);
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

TEST(NoiseFloor, NoiseMultipliesOrDivides) {
  EXPECT_TRUE(ExceedsFloor(1.6, 0.5));
  EXPECT_FALSE(ExceedsFloor(1.4, 0.5));
  EXPECT_TRUE(ExceedsFloor(0.6, 0.5));
  EXPECT_FALSE(ExceedsFloor(0.7, 0.5));
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
