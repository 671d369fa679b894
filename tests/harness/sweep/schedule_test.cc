#include "harness/sweep/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace pinion::harness {
namespace {

using testing::UnorderedElementsAre;

std::vector<TrialRow> Trials(size_t count, double seconds) {
  std::vector<TrialRow> trials(count);
  for (TrialRow& trial : trials) trial.seconds = seconds;
  return trials;
}

TEST(RoundOrder, HasEveryCandidateOnceAndTheAnchorTwice) {
  EXPECT_THAT(RoundOrder({0, 1, 4}, 7, 1, false),
              UnorderedElementsAre(Slot{0, 0}, Slot{0, 1}, Slot{1, 0}, Slot{4, 0}));
}

TEST(RoundOrder, IsDrawnAnewForEveryRoundAndTheSameAgain) {
  const std::vector<int> candidates = {0, 1, 2, 3, 4, 5};
  EXPECT_EQ(RoundOrder(candidates, 7, 3, false), RoundOrder(candidates, 7, 3, false));
  int different = 0;
  for (int round = 1; round <= 10; ++round)
    different +=
        RoundOrder(candidates, 7, round, false) != RoundOrder(candidates, 7, round + 1, false);
  EXPECT_GE(different, 9);
  EXPECT_NE(RoundOrder(candidates, 7, 3, false), RoundOrder(candidates, 7, 3, true));
}

TEST(RoundOrder, GivesEverybodyTheFirstPlaceInTurn) {
  std::set<int> first;
  for (int round = 1; round <= 60; ++round)
    first.insert(RoundOrder({0, 1, 2}, 1, round, false)[0].candidate);
  EXPECT_THAT(first, UnorderedElementsAre(0, 1, 2));
}

TEST(RoundSeed, DiffersByRoundAndByConfirmation) {
  std::set<uint64_t> seeds;
  for (int round = 1; round <= 100; ++round) {
    seeds.insert(RoundSeed(1, round, false));
    seeds.insert(RoundSeed(1, round, true));
    seeds.insert(RoundSeed(2, round, false));
  }
  EXPECT_EQ(seeds.size(), 300u);
}

TEST(PlanRounds, CountsWhatTheBudgetStillHolds) {
  // One round of 4 trials of 5 s is done; 100 s are left, a round costs 20.
  const RoundPlan plan = PlanRounds(Trials(4, 5), 4, 1, 12, 120);
  EXPECT_EQ(plan.rounds, 6);
  EXPECT_DOUBLE_EQ(plan.round_s, 20);
  EXPECT_TRUE(plan.enough);
  EXPECT_EQ(PlanRounds(Trials(4, 5), 4, 1, 4, 120).rounds, 4);  // never more than asked for
}

TEST(PlanRounds, SaysWhatAVerdictWouldNeed) {
  const RoundPlan plan = PlanRounds(Trials(4, 5), 4, 1, 12, 70);
  EXPECT_EQ(plan.rounds, 3);
  EXPECT_FALSE(plan.enough);
  EXPECT_DOUBLE_EQ(plan.enough_s, 20 + 5 * 20);
}

TEST(TrialLimit, LetsTheRoundsFitUnlessItIsGiven) {
  Definition definition;
  definition.budget_s = 1800;
  definition.rounds = 8;
  EXPECT_DOUBLE_EQ(TrialLimitSeconds(definition, 10), 18);
  EXPECT_EQ(TrialLimitSeconds(definition, 1000), 8);
  EXPECT_EQ(TrialLimitSeconds(definition, 1), 120);
  definition.trial_limit_s = 3;
  EXPECT_EQ(TrialLimitSeconds(definition, 10), 3);
}

TEST(PlanRounds, AnOverspentBudgetKeepsWhatIsDone) {
  EXPECT_EQ(PlanRounds(Trials(8, 50), 4, 2, 12, 100).rounds, 2);
}

}  // namespace
}  // namespace pinion::harness
