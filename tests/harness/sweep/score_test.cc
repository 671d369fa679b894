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

// 36 tokens/s offline, and alone a first token after 0.25 s and seven more, one every 0.25 s.
TrialRow Unequal() {
  TrialRow trial;
  trial.ok = true;
  trial.samples = {{"output_tokens_per_s", 0, 36},
                   {"output_tokens_per_s", 1, 4},
                   {"output_tokens_per_s", 8, 900},
                   {"ttft_s", 1, 0.25},
                   {"tpot_s", 1, 0.25},
                   {"ttft_s", 8, 70},
                   {"tpot_s", 8, 30}};
  return trial;
}

TEST(Score, ThroughputIsOfTheOfflineBatch) {
  EXPECT_DOUBLE_EQ(*LogScore(Unequal(), Objective::kThroughput, 8), std::log(36));
}

TEST(Score, LatencyIsOfAWholeAnswerToAClientAlone) {
  EXPECT_DOUBLE_EQ(*LogScore(Unequal(), Objective::kLatency, 8), -std::log(0.25 + 7 * 0.25));
  EXPECT_DOUBLE_EQ(*LogScore(Unequal(), Objective::kLatency, 1), -std::log(0.25));
}

// sqrt(36 tokens/s x 1 / 2 s), which is neither of the two.
TEST(Score, BalancedIsTheGeometricMeanOfThroughputAndLatency) {
  EXPECT_DOUBLE_EQ(*LogScore(Unequal(), Objective::kBalanced, 8), std::log(std::sqrt(18)));
}

TEST(Score, BalancedWeighsBothAlike) {
  TrialRow faster = Unequal(), prompter = Unequal();
  faster.samples[0].value *= 1.1;
  for (MetricValue& sample : prompter.samples)
    if (sample.metric == "ttft_s" || sample.metric == "tpot_s") sample.value /= 1.1;
  const double base = *LogScore(Unequal(), Objective::kBalanced, 8);
  EXPECT_NEAR(*LogScore(faster, Objective::kBalanced, 8) - base, std::log(1.1) / 2, 1e-12);
  EXPECT_NEAR(*LogScore(prompter, Objective::kBalanced, 8) - base, std::log(1.1) / 2, 1e-12);
}

TEST(Score, BalancedNeedsBoth) {
  EXPECT_FALSE(LogScore(Trial(), Objective::kBalanced, 8));  // throughput alone
  TrialRow trial = Unequal();
  trial.samples.erase(trial.samples.begin());
  EXPECT_FALSE(LogScore(trial, Objective::kBalanced, 8));  // latency alone
}

TEST(Score, GoodputIsTheLoadThatTheSearchFound) {
  TrialRow trial = Trial();
  trial.samples.push_back({"goodput", 4, 2});  // of a closed loop: a figure, not the objective
  EXPECT_FALSE(LogScore(trial, Objective::kGoodput, 8));
  trial.samples.push_back({"slo_load", 0, 0.5});
  EXPECT_DOUBLE_EQ(*LogScore(trial, Objective::kGoodput, 8), std::log(0.5));
}

TEST(Score, ALatencyUnderLoadIsTheSampleOfThatLoop) {
  TrialRow trial = Trial();
  trial.samples.push_back({"itl_p95_s", 1, 0.1});
  trial.samples.push_back({"itl_p95_s", 8, 0.25});
  EXPECT_DOUBLE_EQ(*LogScore(trial, *ParseObjective("itl_p95@8"), 8), std::log(4));
  EXPECT_DOUBLE_EQ(*LogScore(trial, *ParseObjective("itl_p95@1"), 8), std::log(10));
  EXPECT_FALSE(LogScore(trial, *ParseObjective("itl_p95@4"), 8));
  EXPECT_FALSE(LogScore(trial, *ParseObjective("itl@8"), 8));
}

TEST(Score, CostIsThatOfTheMachinesTimeAndOfItsEnergy) {
  TrialRow trial;
  trial.samples = {{"output_tokens_per_s", 0, 100}};
  Definition definition;
  EXPECT_FALSE(CostPerMillionTokens(trial, definition));
  definition.price_per_hour = 0.36;  // 360,000 tokens
  EXPECT_NEAR(*CostPerMillionTokens(trial, definition), 1, 1e-12);
  definition.price_per_kwh = 0.30;
  EXPECT_FALSE(CostPerMillionTokens(trial, definition)) << "without energy it would be too little";
  trial.samples.push_back({"joules_per_token", 0, 6});  // 1.667 kWh a million
  EXPECT_NEAR(*CostPerMillionTokens(trial, definition), 1.5, 1e-12);
  definition.price_per_hour.reset();
  EXPECT_NEAR(*CostPerMillionTokens(trial, definition), 0.5, 1e-12);
  trial.samples.push_back({"cost_per_mtoken", 0, 0.5});
  EXPECT_DOUBLE_EQ(*LogScore(trial, Objective::kCost, 8), std::log(2));
}

// Half the cores are better as long as they keep 95 % of the throughput, and so on down.
TEST(Score, FewerCoresMayCostAGivenPartOfTheThroughput) {
  const auto score = [](int threads, double tokens_per_s, double within) {
    TrialRow trial;
    trial.samples = {{"output_tokens_per_s", 0, tokens_per_s}};
    trial.info.threads = threads;
    return *LogScore(trial, Objective::kCores, ScoreRule(8, within));
  };
  EXPECT_GT(score(4, 95.1, 0.05), score(8, 100, 0.05));
  EXPECT_LT(score(4, 94.9, 0.05), score(8, 100, 0.05));
  EXPECT_GT(score(2, 90.3, 0.05), score(8, 100, 0.05));
  EXPECT_GT(score(4, 81, 0.20), score(8, 100, 0.20));
  EXPECT_GT(score(8, 101, 0.05), score(8, 100, 0.05));
  EXPECT_FALSE(LogScore(Trial(), Objective::kCores, 8));  // the trial does not state its threads
}

TEST(Score, EnergyIsTokensPerJoule) {
  TrialRow trial = Trial();
  EXPECT_FALSE(LogScore(trial, Objective::kEnergy, 8));
  trial.samples.push_back({"joules_per_token", 0, 0.25});
  EXPECT_DOUBLE_EQ(*LogScore(trial, Objective::kEnergy, 8), std::log(4));
}

}  // namespace
}  // namespace pinion::harness
