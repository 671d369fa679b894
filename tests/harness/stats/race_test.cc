#include "harness/stats/race.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace pinion::harness {
namespace {

// Contestants 0, 1, ... measured in that order.
ScoredRound Scores(const std::vector<double>& log_scores) {
  ScoredRound round;
  for (const double score : log_scores) round.push_back({round.size(), score});
  return round;
}

// Rounds of contestants with these speeds under normal noise, until the race is over.
Race RunRace(const std::vector<double>& speeds, double noise, int most_rounds, uint32_t seed = 1,
             RaceOptions options = {}) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, noise);
  Race race(speeds.size(), options);
  for (int round = 0; round < most_rounds && !race.over(); ++round) {
    const double drift = round;  // shared by the round: must not matter
    std::vector<double> scores;
    for (const double speed : speeds) scores.push_back(drift + std::log(speed) + normal(random));
    race.AddRound(Scores(scores));
  }
  return race;
}

TEST(Race, EndsWithTheBestAndDropsContestantsFarBehind) {
  const Race race = RunRace({1, 1.1, 0.8, 0.9, 0.85, 0.95, 0.7, 0.75}, 0.01, 20);
  EXPECT_TRUE(race.over());
  EXPECT_LE(race.rounds(), 4u);
  EXPECT_EQ(race.leader(), 1u);
  EXPECT_EQ(race.status(6), RaceStatus::kWorse);
  EXPECT_NEAR(race.scale(), 0.01 * std::sqrt(2), 0.01);
}

TEST(Race, DecidesNothingBeforeTheScaleIsKnown) {
  Race race(2, {});
  race.AddRound(Scores({0.0, 1.0}));
  race.AddRound(Scores({0.0, 1.01}));
  EXPECT_FALSE(race.may_decide());
  EXPECT_FALSE(race.over());
  EXPECT_TRUE(race.is_in(0));
}

TEST(Race, SingleSpikeDropsNoContestant) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal(0, 0.01);
  Race race(8, {});
  for (int round = 0; round < 3; ++round) {
    std::vector<double> scores;
    for (int c = 0; c < 8; ++c) scores.push_back(normal(random) + (c == 3 ? 0.03 : 0));
    if (round == 1) scores[3] = -1.0;
    race.AddRound(Scores(scores));
  }
  EXPECT_TRUE(race.is_in(3));
}

// By the class's description: the mean, over shifts of 1/2, 1, ... 64 scales below the boundary, of
// the likelihood ratio of the shift to the boundary itself, under Student's t with 4 degrees of
// freedom.
double LogEvidence(const std::vector<double>& differences, double boundary, double scale) {
  double sum = 0;
  for (int shift = 0; shift < 8; ++shift) {
    double ratio = 1;
    for (const double difference : differences) {
      const double z = (difference - boundary) / scale, shifted = z + std::ldexp(0.5, shift);
      ratio *= std::pow((1 + z * z / 4) / (1 + shifted * shifted / 4), 2.5);
    }
    sum += ratio / 8;
  }
  return std::log(sum);
}

TEST(Race, DropsAtALikelihoodRatioOfContestantsOverAlpha) {
  constexpr size_t kContestants = 8, kLeader = 0, kSlower = 5;
  std::mt19937 random(3);
  std::normal_distribution<double> normal(0, 0.01);
  std::vector<ScoredRound> rounds;
  for (int round = 0; round < 2; ++round) {
    std::vector<double> scores(kContestants);
    for (double& score : scores) score = normal(random);
    scores[kLeader] += 0.05;
    scores[kSlower] -= 0.05;
    rounds.push_back(Scores(scores));
  }
  const Detrended steady = WithoutDrift(rounds, kContestants);
  std::vector<double> differences;
  for (const ScoredRound& round : steady.rounds)
    differences.push_back(round[kSlower].log_score - round[kLeader].log_score);
  const RaceOptions options;
  const double scale = steady.scale * std::sqrt(2);  // of a difference of two trials
  const double evidence = LogEvidence(differences, std::log1p(options.epsilon), scale);
  for (const double just : {0.999, 1.001}) {
    Race race(kContestants, {.alpha = just * kContestants / std::exp(evidence)});
    for (const ScoredRound& round : rounds) race.AddRound(round);
    ASSERT_EQ(race.leader(), kLeader);
    EXPECT_NEAR(race.scale(), scale, 1e-12);
    EXPECT_EQ(race.is_in(kSlower), just < 1) << "evidence " << evidence;
  }
}

TEST(Race, EqualCandidatesEndTheRaceToo) {
  const Race race = RunRace(std::vector<double>(8, 1.0), 0.01, 50);
  EXPECT_TRUE(race.over());
  EXPECT_LT(race.rounds(), 20u);
}

// Noise of 10 %, of which no confirmation can tell 2 %: to look for it would take hundreds of
// rounds.
TEST(Race, InMuchNoiseLooksForLeadsThatCanBeConfirmed) {
  size_t rounds = 0;
  for (uint32_t seed = 0; seed < 20; ++seed)
    rounds += RunRace(std::vector<double>(24, 1.0), 0.1, 40, seed).rounds();
  EXPECT_LE(rounds, 20u * 12);
  // Leads beyond the floor are found.
  int found = 0;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::vector<double> speeds(24, 1.0);
    speeds[7] = 1.3;
    found += RunRace(speeds, 0.1, 40, seed).leader() == 7u ? 1 : 0;
  }
  EXPECT_GE(found, 19);
}

TEST(Race, SeldomLosesTheBest) {
  int lost = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const Race race = RunRace({1, 1, 1, 1.05, 1, 1, 1, 1}, 0.015, 30, seed);
    lost += race.leader() == 3u ? 0 : 1;
  }
  EXPECT_LE(lost, 10);  // 5 %
}

TEST(Race, GridDropsNoContestant) {
  const Race race = RunRace({1, 2, 3, 4}, 0.001, 10, 1, {.drops = false});
  EXPECT_FALSE(race.over());
  EXPECT_EQ(race.rounds(), 10u);
  for (size_t c = 0; c < 4; ++c) EXPECT_TRUE(race.is_in(c));
}

TEST(Race, StaysFiniteWithoutNoise) {
  const Race race = RunRace({1, 1, 2, 2}, 0, 10);
  EXPECT_TRUE(race.over());
  EXPECT_EQ(race.leader(), 2u);
  const auto gap = race.GapBetween(0, 2);
  ASSERT_TRUE(gap);
  EXPECT_NEAR(gap->estimate, -std::log(2), 1e-9);
}

TEST(Race, IgnoresMissingScoresAndWithdrawnContestantsDoNotLead) {
  Race race(3, {});
  for (int round = 0; round < 6; ++round)
    race.AddRound(round < 2 ? Scores({0.01 * round, 5.0, 0.2})
                            : ScoredRound{{0, 0.01 * round}, {2, 0.2}});
  EXPECT_EQ(race.leader(), 1u);
  race.Withdraw(1);
  race.AddRound(ScoredRound{{0, 0.0}, {2, 0.2}});
  EXPECT_EQ(race.leader(), 2u);
}

}  // namespace
}  // namespace pinion::harness
