#include "engine/decoder/choose_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

namespace pinion {
namespace {

using ::testing::ElementsAre;

std::vector<int32_t> Choose(const std::vector<float>& scores, size_t k) {
  std::vector<int32_t> chosen(k);
  std::vector<float> scratch;
  ChooseTokens(scores.data(), scores.size(), k, chosen.data(), scratch);
  return chosen;
}

TEST(ChooseTokens, TakesTheLargestInTheOrderOfPositions) {
  EXPECT_THAT(Choose({3, -1, 7, 0, 5}, 3), ElementsAre(0, 2, 4));
  EXPECT_THAT(Choose({3, -1, 7, 0, 5}, 1), ElementsAre(2));
  EXPECT_THAT(Choose({3, -1, 7}, 3), ElementsAre(0, 1, 2));
}

TEST(ChooseTokens, OfEqualScoresTheEarlierTokensWin) {
  EXPECT_THAT(Choose({1, 2, 1, 1, 2, 1}, 4), ElementsAre(0, 1, 2, 4));
  EXPECT_THAT(Choose({0, 0, 0, 0}, 2), ElementsAre(0, 1));
}

TEST(ChooseTokens, NanLosesAgainstEverything) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(Choose({nan, -5, nan, -7}, 2), ElementsAre(1, 3));
  EXPECT_THAT(Choose({nan, nan, 1}, 2), ElementsAre(0, 2));
}

TEST(ChooseTokens, AgreesWithSortingEverything) {
  std::mt19937 rng(20261125);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> scores(1 + rng() % 300);
    for (float& score : scores) score = static_cast<float>(rng() % 50);  // many are equal
    const size_t k = 1 + rng() % scores.size();
    std::vector<int32_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
    });
    order.resize(k);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(Choose(scores, k), order);
  }
}

}  // namespace
}  // namespace pinion
