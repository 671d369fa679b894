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

TEST(Race, EndsWithTheBestAndDropsWhoIsFarBehind) {
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

TEST(Race, OneWildSpikeDropsNobody) {
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

TEST(Race, EqualOnesEndTooAndKeepTheirStanding) {
  const Race race = RunRace(std::vector<double>(8, 1.0), 0.01, 50);
  EXPECT_TRUE(race.over());
  EXPECT_LT(race.rounds(), 20u);
}

TEST(Race, SeldomLosesTheBest) {
  int lost = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const Race race = RunRace({1, 1, 1, 1.05, 1, 1, 1, 1}, 0.015, 30, seed);
    lost += race.leader() == 3u ? 0 : 1;
  }
  EXPECT_LE(lost, 10);  // 5 %
}

TEST(Race, AGridDropsNobody) {
  const Race race = RunRace({1, 2, 3, 4}, 0.001, 10, 1, {.drops = false});
  EXPECT_FALSE(race.over());
  EXPECT_EQ(race.rounds(), 10u);
  for (size_t c = 0; c < 4; ++c) EXPECT_TRUE(race.is_in(c));
}

TEST(Race, WithoutAnyNoiseItStaysFinite) {
  const Race race = RunRace({1, 1, 2, 2}, 0, 10);
  EXPECT_TRUE(race.over());
  EXPECT_EQ(race.leader(), 2u);
  const auto gap = race.GapBetween(0, 2);
  ASSERT_TRUE(gap);
  EXPECT_NEAR(gap->estimate, -std::log(2), 1e-9);
}

TEST(Race, MissingScoresAreLeftOutAndTheWithdrawnDoNotLead) {
  Race race(3, {});
  for (int round = 0; round < 6; ++round)
    race.AddRound(round < 2 ? Scores({0.01 * round, 5.0, 0.2})
                            : ScoredRound{{0, 0.01 * round}, {2, 0.2}});
  EXPECT_EQ(race.leader(), 1u);
  race.Withdraw(1);
  race.AddRound(ScoredRound{{0, 0.0}, {2, 0.2}});
  EXPECT_EQ(race.leader(), 2u);
}

TEST(ConfirmationRounds, AreMoreWhereMoreHelp) {
  EXPECT_EQ(ConfirmationRounds(0.01, 0.02), 10u);
  EXPECT_EQ(ConfirmationRounds(0.03, 0.02), 13u);
  EXPECT_EQ(ConfirmationRounds(0.10, 0.02), 10u);
}

}  // namespace
}  // namespace pinion::harness
