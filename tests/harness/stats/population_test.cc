#include "harness/stats/population.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace pinion::harness {
namespace {

using Member = Population::Member;

// Noisy estimates of `truth`, each with standard error `error`.
std::vector<Member> Estimates(const std::vector<double>& truth, double error, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, error);
  std::vector<Member> members;
  for (const double value : truth) members.push_back({value + normal(random), error});
  return members;
}

TEST(Population, EqualMembersAreRecognisedAsEqual) {
  const auto members = Estimates(std::vector<double>(24, 0.0), 0.01, 3);
  const Population population(members);
  double alone = 0, together = 0;
  for (size_t i = 1; i < members.size(); ++i) {
    together += population.ChanceAhead(members[i], members[0], 0.02);
    alone += 0.5 * std::erfc((0.02 - (members[i].estimate - members[0].estimate)) / 0.02);
  }
  EXPECT_LT(together, alone / 4);
}

TEST(Population, MemberFarAheadKeepsItsLead) {
  auto members = Estimates(std::vector<double>(24, 0.0), 0.005, 4);
  members[7].estimate = 0.08;
  const Population population(members);
  EXPECT_GT(population.ChanceAhead(members[7], members[0], 0.05), 0.9);
  EXPECT_LT(population.ChanceAhead(members[0], members[7], 0), 1e-6);
}

// If values differ by much more than their errors, the population adds nothing to the estimates.
TEST(Population, WidelySpreadMembersAreNotShrunk) {
  const auto members = Estimates({0, 0.1, -0.1, 0.2, -0.2, 0.05, -0.05, 0.15}, 0.01, 5);
  const Population population(members);
  const double gap = members[3].estimate - members[7].estimate;
  const double alone = 0.5 * std::erfc((0.02 - gap) / (0.01 * std::sqrt(2)) / std::sqrt(2));
  EXPECT_NEAR(population.ChanceAhead(members[3], members[7], 0.02), alone, 0.02);
}

// Of the pairs said to be ahead with a chance of p, about p are. Twelve estimates determine their
// spread only roughly, hence the tolerance of a third.
TEST(Population, ChancesAreCalibrated) {
  std::mt19937 random(6);
  std::normal_distribution<double> normal(0, 0.015);
  double said = 0, was = 0;
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    std::vector<double> truth(12);
    for (double& value : truth) value = normal(random);
    const auto members = Estimates(truth, 0.015, seed);
    said += Population(members).ChanceAhead(members[0], members[1], 0.01);
    was += truth[0] - truth[1] > 0.01 ? 1 : 0;
  }
  EXPECT_NEAR(said, was, was / 3);
}

TEST(Population, UnmeasuredMembersAreIgnored) {
  std::vector<Member> members = Estimates(std::vector<double>(8, 0.0), 0.01, 9);
  const double before = Population(members).ChanceAhead(members[0], members[1], 0.01);
  members.push_back({});
  EXPECT_DOUBLE_EQ(Population(members).ChanceAhead(members[0], members[1], 0.01), before);
}

}  // namespace
}  // namespace pinion::harness
