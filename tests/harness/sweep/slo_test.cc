#include "harness/sweep/slo.h"

#include <gtest/gtest.h>

namespace pinion::harness {
namespace {

TrialRow Found(int candidate, const SloLevels& levels) {
  TrialRow trial;
  trial.candidate = candidate;
  trial.ok = true;
  trial.info.slo = {"clients", levels};
  return trial;
}

TEST(PooledBoundary, PoolsAllTrialsOfTheCandidate) {
  SloTarget target;
  target.attain = 0.9;
  target.by_rate = false;
  std::vector<TrialRow> trials = {Found(0, {{2, {20, 20}}, {4, {19, 20}}}),
                                  Found(0, {{4, {17, 20}}, {8, {3, 20}}}),
                                  Found(1, {{8, {20, 20}}})};
  trials.push_back(Found(0, {{8, {20, 20}}}));
  trials.back().ok = false;
  const auto found = PooledBoundary(trials, 0, target);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->options.whole);
  const SloBoundary& boundary = found->boundary;
  EXPECT_EQ(boundary.runs, 4);
  const SloLevel& pass = boundary.levels[*boundary.pass];
  EXPECT_EQ(pass.load, 4);  // 36 of 40
  EXPECT_EQ(pass.total, 40u);
  EXPECT_LT(pass.interval.low, 0.9);
  EXPECT_EQ(boundary.levels[*boundary.fail].load, 8);
  EXPECT_TRUE(boundary.is_cliff);
  EXPECT_FALSE(PooledBoundary(trials, 2, target));
}

}  // namespace
}  // namespace pinion::harness
