#include "harness/stats/pareto.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "harness/stats/rules.h"

namespace pinion::harness {
namespace {

constexpr double kNoise = 0.02;  // scale, of one trial

// Points of such speeds in the two quantities, relative to the first one, over made-up rounds that
// each have a level of their own. The noise of both quantities is the same: that is the worst case.
class MadeUp {
 public:
  explicit MadeUp(uint64_t seed) : random_(seed) {}

  std::vector<ParetoPoint> Rounds(const std::vector<std::pair<double, double>>& speeds,
                                  int rounds) {
    std::vector<ParetoPoint> points(speeds.size());
    for (int round = 1; round <= rounds; ++round) {
      const double level = 10 * Noise();
      for (size_t i = 0; i < speeds.size(); ++i) {
        const double noise = Noise();
        points[i].first[round] = level + std::log(speeds[i].first) + noise;
        points[i].second[round] = level + std::log(speeds[i].second) + noise;
      }
    }
    return points;
  }

 private:
  double Noise() { return kNoise * std::student_t_distribution<double>(4)(random_); }
  std::mt19937_64 random_;
};

std::string Names(const std::vector<FrontPlace>& places) {
  std::string names;
  for (const FrontPlace& place : places) names += std::string(Name(place.front)) + " ";
  return names;
}

TEST(ParetoFront, HasThePointsThatTradeOneQuantityForTheOther) {
  const auto places = ParetoFront(MadeUp(1).Rounds({{1, 3}, {2, 2}, {3, 1}, {1, 1}}, 12));
  EXPECT_EQ(Names(places), "on on on off ");
  EXPECT_FALSE(places[0].beaten_by);
  EXPECT_EQ(places[3].beaten_by, 1u) << "the only one that is better in both";
}

TEST(ParetoFront, OneOfTwoThatCannotBeToldApartMayBelongToIt) {
  for (const uint64_t seed : {1, 2, 3}) {
    const auto places = ParetoFront(MadeUp(seed).Rounds({{1, 1}, {2, 2}, {2, 2}}, 12));
    EXPECT_EQ(places[0].front, Front::kOff);
    const std::string both = Names({places[1], places[2]});
    EXPECT_TRUE(both == "on possible " || both == "possible on ") << both;
  }
}

// A lead in one quantity alone is none.
TEST(ParetoFront, APointThatIsEquallyGoodInOneQuantityIsNotDominated) {
  int off = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const auto points = MadeUp(seed).Rounds({{1, 1}, {3, 1}}, 12);
    off += ParetoFront(points)[0].front == Front::kOff ? 1 : 0;
  }
  EXPECT_LE(off, 2) << "5 %";
}

// As the race does it: two rounds cannot give an interval of their own.
TEST(ParetoFront, AFewRoundsTellDifferencesThatExceedTheNoiseOfAll) {
  std::vector<ParetoPoint> points =
      MadeUp(4).Rounds({{1, 1}, {1, 1}, {1.02, 1.02}, {0.3, 0.3}}, 12);
  for (const size_t i : {2, 3}) {
    std::erase_if(points[i].first, [](const auto& one) { return one.first > 2; });
    std::erase_if(points[i].second, [](const auto& one) { return one.first > 2; });
  }
  EXPECT_EQ(ParetoFront(points)[3].front, Front::kOff);
  EXPECT_NE(ParetoFront(points)[2].front, Front::kOff);
}

TEST(ParetoFront, WithoutACommonRoundNothingIsSure) {
  std::vector<ParetoPoint> points = MadeUp(5).Rounds({{1, 1}, {1, 1}}, 12);
  for (ByRound ParetoPoint::*quantity : {&ParetoPoint::first, &ParetoPoint::second}) {
    std::erase_if(points[0].*quantity, [](const auto& one) { return one.first > 6; });
    std::erase_if(points[1].*quantity, [](const auto& one) { return one.first <= 6; });
    for (auto& [round, value] : points[1].*quantity) value += 5;
  }
  EXPECT_EQ(Names(ParetoFront(points)), "possible on ");
}

TEST(ParetoFront, ASinglePointIsOnItAndNoneIsNothing) {
  EXPECT_EQ(Names(ParetoFront(MadeUp(6).Rounds({{1, 1}}, 1))), "on ");
  EXPECT_TRUE(ParetoFront({}).empty());
}

// All are equal, so that each belongs to the front, and each of the others may beat it by chance.
// The margin is what a share of exactly that level exceeds in 5 % of cases.
TEST(ParetoFront, APointOfItIsCalledDominatedNoMoreOftenThanTheFamilyLevel) {
  constexpr int kReplays = 2000;
  const double most =
      kReplays * kFamilyLevel + 1.64 * std::sqrt(kReplays * kFamilyLevel * (1 - kFamilyLevel));
  const std::vector<std::pair<double, double>> equal(12, {1, 1});
  for (const int rounds : {2, 6, 20}) {
    int off = 0;
    for (int i = 0; i < kReplays; ++i) {
      const auto points = MadeUp(static_cast<uint64_t>(10000 * rounds + i)).Rounds(equal, rounds);
      off += ParetoFront(points)[7].front == Front::kOff ? 1 : 0;
    }
    EXPECT_LE(off, most) << rounds << " rounds";
  }
}

}  // namespace
}  // namespace pinion::harness
