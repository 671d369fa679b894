#include "harness/stats/drift.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace pinion::harness {
namespace {

constexpr size_t kContestants = 24;

// Rounds in random order of contestants that are `step` apart, under noise of 2 % whose neighbours
// correlate by `correlation`.
std::vector<ScoredRound> Rounds(int count, double step, double correlation, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, 0.02 * std::sqrt(1 - correlation * correlation));
  std::vector<ScoredRound> rounds(static_cast<size_t>(count));
  double noise = 0;
  for (ScoredRound& round : rounds) {
    for (size_t c = 0; c < kContestants; ++c) round.push_back({c, step * static_cast<double>(c)});
    std::shuffle(round.begin(), round.end(), random);
    for (TrialScore& one : round) one.log_score += noise = correlation * noise + normal(random);
  }
  return rounds;
}

// Mean squared error of the differences between neighbouring contestants' effects.
double Error(const std::vector<Effect>& effects, double step) {
  double sum = 0;
  for (size_t c = 1; c < effects.size(); ++c)
    sum += std::pow(effects[c].log_score - effects[c - 1].log_score - step, 2);
  return sum / static_cast<double>(effects.size() - 1);
}

TEST(Drift, RemovingSharedNoiseImprovesTheEstimates) {
  double steady = 0, raw = 0;
  for (uint32_t seed = 0; seed < 50; ++seed) {
    const auto rounds = Rounds(5, 0.01, 0.8, seed);
    const Detrended fit = WithoutDrift(rounds, kContestants);
    EXPECT_GT(fit.share, 0.3);
    steady += Error(fit.effects, 0.01);
    std::vector<Effect> means(kContestants);
    for (const ScoredRound& round : rounds)
      for (const TrialScore& one : round) means[one.contestant].log_score += one.log_score / 5;
    raw += Error(means, 0.01);
  }
  EXPECT_LT(steady, 0.8 * raw);
}

TEST(Drift, IndependentNoiseYieldsASmallShare) {
  double share = 0;
  for (uint32_t seed = 0; seed < 50; ++seed)
    share += WithoutDrift(Rounds(5, 0.01, 0, seed), kContestants).share / 50;
  EXPECT_LT(share, 0.15);
}

TEST(Drift, SpikeMovesNoNeighbourAndWeighsLittle) {
  double lost = 0;  // trials that the spiked one's worth rests on no more
  for (uint32_t seed = 0; seed < 20; ++seed) {
    auto rounds = Rounds(4, 0, 0.8, seed);
    const Detrended before = WithoutDrift(rounds, kContestants);
    const size_t hit = rounds[1][10].contestant, neighbour = rounds[1][11].contestant;
    rounds[1][10].log_score -= 2;
    const Detrended after = WithoutDrift(rounds, kContestants);
    for (const size_t c : {hit, neighbour})
      EXPECT_NEAR(after.effects[c].log_score, before.effects[c].log_score, 0.04);
    lost += (before.effects[hit].trials - after.effects[hit].trials) / 20;
  }
  EXPECT_GT(lost, 0.5);
}

TEST(Drift, NoMoreIsTakenAwayThanBothNeighboursAreOffBy) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    auto rounds = Rounds(4, 0, 0.8, seed);
    rounds[1][10].log_score -= 2;
    const Detrended fit = WithoutDrift(rounds, kContestants);
    ASSERT_GT(fit.share, 0.2);
    for (const size_t beside : {9, 11}) {
      // The neighbour on its other side is within noise of 0.02, five times that at most.
      const double taken = rounds[1][beside].log_score - fit.rounds[1][beside].log_score;
      EXPECT_LT(std::abs(taken), 0.1) << "seed " << seed;
    }
  }
}

TEST(Drift, TheScaleIsTheSameFromFewRoundsAsFromMany) {
  // Each residual is around a location of its own: of two rounds it is too small by sqrt(2).
  double few = 0, many = 0;
  for (uint32_t seed = 0; seed < 50; ++seed) {
    few += WithoutDrift(Rounds(2, 0.01, 0, seed), kContestants).scale / 50;
    many += WithoutDrift(Rounds(20, 0.01, 0, seed), kContestants).scale / 50;
  }
  EXPECT_NEAR(few / many, 1, 0.1);
}

TEST(Drift, RoundLevelsAndMissingContestantsDoNotMatter) {
  auto rounds = Rounds(4, 0.01, 0, 4);
  const Detrended level = WithoutDrift(rounds, kContestants);
  for (size_t r = 0; r < rounds.size(); ++r)
    for (TrialScore& one : rounds[r]) one.log_score += static_cast<double>(r);
  rounds.push_back({{20, 9.20}, {21, 9.21}});
  const Detrended moved = WithoutDrift(rounds, kContestants + 1);
  EXPECT_NEAR(Error(moved.effects, 0.01), Error(level.effects, 0.01), 1e-2);
  EXPECT_NEAR(moved.effects[5].log_score - moved.effects[4].log_score,
              level.effects[5].log_score - level.effects[4].log_score, 0.005);
  EXPECT_EQ(moved.effects[kContestants].trials, 0);
}

}  // namespace
}  // namespace pinion::harness
