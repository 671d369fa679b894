#include "harness/sweep/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace pinion::harness {
namespace {

using testing::UnorderedElementsAre;

TEST(RoundOrder, HasEveryCandidateOnceAndTheBaselineTwice) {
  EXPECT_THAT(RoundOrder({0, 1, 4}, 7, Phase::kRace, 3),
              UnorderedElementsAre(Slot{0, 0, Phase::kRace, 3}, Slot{0, 1, Phase::kRace, 3},
                                   Slot{1, 0, Phase::kRace, 3}, Slot{4, 0, Phase::kRace, 3}));
}

std::vector<int> Candidates(const std::vector<Slot>& order) {
  std::vector<int> candidates;
  for (const Slot& slot : order) candidates.push_back(slot.candidate + 100 * slot.copy);
  return candidates;
}

TEST(RoundOrder, DiffersByRoundAndIsReproducible) {
  const std::vector<int> six = {0, 1, 2, 3, 4, 5};
  const auto order = [&](Phase phase, int round) {
    return Candidates(RoundOrder(six, 7, phase, round));
  };
  EXPECT_EQ(order(Phase::kRace, 3), order(Phase::kRace, 3));
  int different = 0;
  for (int round = 1; round <= 10; ++round)
    different += order(Phase::kRace, round) != order(Phase::kRace, round + 1);
  EXPECT_GE(different, 9);
  EXPECT_NE(order(Phase::kRace, 3), order(Phase::kConfirmation, 3));
}

TEST(RoundOrder, GivesEveryCandidateTheFirstPlaceEquallyOften) {
  std::set<int> first;
  for (int round = 1; round <= 60; ++round)
    first.insert(RoundOrder({0, 1, 2}, 1, Phase::kRace, round)[0].candidate);
  EXPECT_THAT(first, UnorderedElementsAre(0, 1, 2));
}

TEST(RoundSeed, DiffersByRoundAndByPhase) {
  std::set<uint64_t> seeds;
  for (int round = 1; round <= 100; ++round)
    for (const Phase phase : {Phase::kRace, Phase::kConfirmation, Phase::kCalibration})
      for (const uint64_t seed : {1, 2}) seeds.insert(RoundSeed(seed, phase, round));
  EXPECT_EQ(seeds.size(), 600u);
}

TEST(Spending, ExpectedTimeLeavesOutWorkThatIsDoneOnce) {
  Spending spending(100);
  spending.Add(1, 10, 4);
  EXPECT_EQ(spending.spent_s(), 10);
  EXPECT_EQ(spending.Expected(1), 6);
}

TEST(Spending, ExpectedTimeIsTheMeanOfTheCandidatesTrials) {
  Spending spending(100);
  spending.Add(0, 10);
  spending.Add(1, 20);
  EXPECT_DOUBLE_EQ(spending.Expected(1), 20);
  EXPECT_DOUBLE_EQ(spending.Expected(2), 15);  // the mean of all others
  EXPECT_DOUBLE_EQ(spending.RoundSeconds({0, 1, 2}), 10 + 10 + 20 + 15);
  EXPECT_DOUBLE_EQ(spending.left_s(), 70);
}

// Of trials whose times differ by chance, and not because their configurations do.
TEST(Spending, UnsteadyTrialsMayTakeLongerThanTheirMean) {
  Spending spending(100);
  EXPECT_EQ(spending.AtMost(8), 8) << "nothing is known";
  for (const double seconds : {10.0, 10.0}) spending.Add(0, seconds);
  for (const double seconds : {20.0, 20.0}) spending.Add(1, seconds);
  EXPECT_DOUBLE_EQ(spending.AtMost(8), 8);
  Spending unsteady(100);
  for (const double seconds : {8.0, 12.0}) unsteady.Add(0, seconds);
  for (const double seconds : {16.0, 24.0}) unsteady.Add(1, seconds);
  const double spread = std::sqrt(4 * 0.2 * 0.2 / 2);  // two degrees of freedom
  EXPECT_DOUBLE_EQ(unsteady.AtMost(8), 8 * (1 + 2 * spread * std::sqrt(1.0 / 8 + 1.0 / 4)));
}

TEST(TrialLimit, LetsARaceAndItsConfirmationFitUnlessOneIsGiven) {
  Definition definition;
  definition.budget_s = 1800;
  EXPECT_DOUBLE_EQ(TrialLimitSeconds(definition, 10), 0.8 * 1800 / (10 * 5 + 30));
  EXPECT_EQ(TrialLimitSeconds(definition, 1000), 8);
  definition.budget_s = 18000;
  EXPECT_EQ(TrialLimitSeconds(definition, 1), 120);
  definition.trial_limit_s = 3;
  EXPECT_EQ(TrialLimitSeconds(definition, 10), 3);
}

}  // namespace
}  // namespace pinion::harness
