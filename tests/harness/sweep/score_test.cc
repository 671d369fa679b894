#include "harness/sweep/score.h"

#include <gtest/gtest.h>

#include <cmath>

namespace pinion::harness {
namespace {

TrialRow Trial() {
  TrialRow trial;
  trial.ok = true;
  trial.samples = {{"output_tokens_per_s", 0, 50}, {"output_tokens_per_s", 4, 9}};
  return trial;
}

TEST(Score, GoodputIsTheBestOverTheLoops) {
  TrialRow trial = Trial();
  EXPECT_FALSE(LogScore(trial, Objective::kGoodput, 8));
  trial.samples.push_back({"goodput", 1, 0.5});
  trial.samples.push_back({"goodput", 4, 2});
  trial.samples.push_back({"goodput", 16, 0});
  EXPECT_DOUBLE_EQ(*LogScore(trial, Objective::kGoodput, 8), std::log(2));
}

TEST(Score, MeetingNothingIsWorseThanMeetingAnything) {
  TrialRow none = Trial(), some = Trial();
  none.samples.push_back({"goodput", 1, 0});
  some.samples.push_back({"goodput", 1, 0.001});
  EXPECT_LT(*LogScore(none, Objective::kGoodput, 8), *LogScore(some, Objective::kGoodput, 8));
}

// Half the cores are better as long as they keep 95 % of the throughput, and so on down.
TEST(Score, FewerCoresMayCostAGivenPartOfTheThroughput) {
  const auto score = [](int threads, double tokens_per_s, double within) {
    TrialRow trial;
    trial.samples = {{"output_tokens_per_s", 0, tokens_per_s}};
    trial.info.Set("threads", threads);
    return *LogScore(trial, Objective::kCores, ScoreRule(8, within));
  };
  EXPECT_GT(score(4, 95.1, 0.05), score(8, 100, 0.05));
  EXPECT_LT(score(4, 94.9, 0.05), score(8, 100, 0.05));
  EXPECT_GT(score(2, 90.3, 0.05), score(8, 100, 0.05));
  EXPECT_GT(score(4, 81, 0.20), score(8, 100, 0.20));
  EXPECT_GT(score(8, 101, 0.05), score(8, 100, 0.05));
  EXPECT_FALSE(LogScore(Trial(), Objective::kCores, 8));  // nobody said how many
}

TEST(Score, EnergyIsTokensPerJoule) {
  TrialRow trial = Trial();
  EXPECT_FALSE(LogScore(trial, Objective::kEnergy, 8));
  trial.samples.push_back({"joules_per_token", 0, 0.25});
  EXPECT_DOUBLE_EQ(*LogScore(trial, Objective::kEnergy, 8), std::log(4));
}

}  // namespace
}  // namespace pinion::harness
