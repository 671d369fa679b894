// Routing against a plain reference in double that follows the published code step by step.

#include "engine/spec/routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace pinion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Choice {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

Choice Route(const RouterSpec& spec, const std::vector<float>& logits,
             const std::vector<float>& correction = {}) {
  const auto k = static_cast<size_t>(spec.top_k);
  Choice choice{std::vector<int32_t>(k), std::vector<float>(k)};
  TokenRouter(spec).Route(logits.data(), correction.empty() ? nullptr : correction.data(),
                          choice.experts.data(), choice.weights.data());
  return choice;
}

std::vector<size_t> Descending(const std::vector<double>& keys) {
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return keys[a] > keys[b]; });
  return order;
}

std::vector<double> Softmax(const std::vector<double>& x) {
  std::vector<double> y;
  for (const double v : x) y.push_back(std::exp(v));
  const double sum = std::accumulate(y.begin(), y.end(), 0.0);
  for (double& v : y) v /= sum;
  return y;
}

// The experts allowed by their groups, from what is compared.
std::vector<double> Limit(const RouterSpec& spec, std::vector<double> keys) {
  const size_t size = keys.size() / static_cast<size_t>(spec.groups);
  std::vector<double> groups;
  for (size_t g = 0; g < keys.size(); g += size) {
    std::vector<double> sorted(keys.begin() + static_cast<ptrdiff_t>(g),
                               keys.begin() + static_cast<ptrdiff_t>(g + size));
    std::sort(sorted.rbegin(), sorted.rend());
    groups.push_back(spec.group_score == GroupScore::kBest ? sorted[0] : sorted[0] + sorted[1]);
  }
  const auto order = Descending(groups);
  for (size_t i = static_cast<size_t>(spec.top_groups); i < order.size(); ++i)
    for (size_t e = 0; e < size; ++e) keys[order[i] * size + e] = -1e30;
  return keys;
}

void ExpectAsReference(const RouterSpec& spec, const std::vector<float>& logits,
                       const std::vector<float>& correction) {
  const auto k = static_cast<size_t>(spec.top_k);
  std::vector<double> scores(logits.begin(), logits.end());
  if (spec.score == RouterScore::kSoftmax) scores = Softmax(scores);
  if (spec.score == RouterScore::kSigmoid)
    for (double& v : scores) v = 1 / (1 + std::exp(-v));
  std::vector<double> keys = scores;
  for (size_t i = 0; i < correction.size(); ++i) keys[i] += correction[i];
  const auto order = Descending(Limit(spec, keys));
  std::vector<double> weights;
  for (size_t i = 0; i < k; ++i) weights.push_back(scores[order[i]]);
  if (spec.score == RouterScore::kLogit) weights = Softmax(weights);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (spec.normalise)
    for (double& w : weights) w /= sum;

  const Choice choice = Route(spec, logits, correction);
  for (size_t i = 0; i < k; ++i) {
    EXPECT_EQ(static_cast<size_t>(choice.experts[i]), order[i]);
    // A softmax over n adds n exponentials of 1 ulp each; the rest is a handful of roundings.
    const double bound = (static_cast<double>(logits.size()) + 16) * 0x1p-24;
    EXPECT_NEAR(choice.weights[i], weights[i] * spec.scale,
                bound * std::abs(weights[i] * spec.scale));
  }
}

RouterSpec Spec(int experts, int top_k, RouterScore score) {
  RouterSpec spec;
  spec.experts = experts;
  spec.top_k = top_k;
  spec.score = score;
  return spec;
}

RouterSpec Grouped(RouterSpec spec, int groups, int top_groups, GroupScore score) {
  spec.groups = groups;
  spec.top_groups = top_groups;
  spec.group_score = score;
  return spec;
}

RouterSpec Normalised(RouterSpec spec, float scale) {
  spec.normalise = true;
  spec.scale = scale;
  return spec;
}

TEST(Routing, FollowsTheReferenceForEveryPublishedKind) {
  const RouterSpec mixtral = Normalised(Spec(8, 2, RouterScore::kSoftmax), 1);
  const RouterSpec qwen = Normalised(Spec(128, 8, RouterScore::kSoftmax), 1);
  const RouterSpec v2 = Grouped(Spec(160, 6, RouterScore::kSoftmax), 8, 3, GroupScore::kBest);
  RouterSpec v3 =
      Grouped(Normalised(Spec(256, 8, RouterScore::kSigmoid), 2.5f), 8, 4, GroupScore::kTwoBest);
  v3.correction = true;
  std::mt19937 rng(20261121);
  std::normal_distribution<float> normal;
  for (const RouterSpec& spec : {mixtral, qwen, Spec(64, 6, RouterScore::kSoftmax),
                                 Spec(32, 4, RouterScore::kLogit), v2, v3}) {
    ASSERT_TRUE(CheckRouter(spec));
    for (int token = 0; token < 20; ++token) {
      std::vector<float> logits(static_cast<size_t>(spec.experts)), correction;
      for (float& v : logits) v = 2 * normal(rng);
      if (spec.correction)
        for (size_t i = 0; i < logits.size(); ++i) correction.push_back(0.3f * normal(rng));
      ExpectAsReference(spec, logits, correction);
    }
  }
}

TEST(Routing, TheCorrectionChoosesButDoesNotWeigh) {
  RouterSpec spec = Spec(4, 2, RouterScore::kSigmoid);
  spec.correction = true;
  const Choice choice = Route(spec, {0, 0, -1, 3}, {0, 0.1f, 1, 0});
  EXPECT_THAT(choice.experts, ElementsAre(2, 3));
  EXPECT_FLOAT_EQ(choice.weights[0], 1 / (1 + std::exp(1.0f)));
}

TEST(Routing, AnExpertOutsideTheBestGroupsIsNotChosenHoweverGood) {
  // Groups {5, 0}, {4, 4}: by their best the first wins, by their two best the second.
  RouterSpec spec = Grouped(Spec(4, 2, RouterScore::kLogit), 2, 1, GroupScore::kBest);
  EXPECT_THAT(Route(spec, {5, 0, 4, 4}).experts, ElementsAre(0, 1));
  spec.group_score = GroupScore::kTwoBest;
  EXPECT_THAT(Route(spec, {5, 0, 4, 4}).experts, ElementsAre(2, 3));
}

TEST(Routing, GroupsAreLimitedBelowZeroToo) {
  // A forbidden expert must not look better than an allowed one with a negative key.
  RouterSpec spec = Grouped(Spec(4, 2, RouterScore::kSigmoid), 2, 1, GroupScore::kTwoBest);
  spec.correction = true;
  EXPECT_THAT(Route(spec, {0, 0, 0, 0}, {-2, -3, -4, -4}).experts, ElementsAre(0, 1));
}

TEST(Routing, EqualScoresGoToTheLowerExpert) {
  EXPECT_THAT(Route(Spec(6, 3, RouterScore::kSoftmax), {1, 2, 2, 1, 2, 2}).experts,
              ElementsAre(1, 2, 4));
}

TEST(Routing, LogitsThatAreNotNumbersStillChooseDistinctExperts) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  for (const RouterScore score :
       {RouterScore::kSoftmax, RouterScore::kSigmoid, RouterScore::kLogit}) {
    EXPECT_THAT(Route(Spec(4, 3, score), {nan, nan, nan, nan}).experts, ElementsAre(0, 1, 2));
    auto experts = Route(Spec(4, 3, score), {nan, infinity, -infinity, infinity}).experts;
    std::sort(experts.begin(), experts.end());
    EXPECT_EQ(std::unique(experts.begin(), experts.end()), experts.end());
  }
}

TEST(Routing, ContradictoryNumbersAreNamed) {
  const auto error = [](const RouterSpec& spec) { return CheckRouter(spec).error().message; };
  EXPECT_THAT(error(Spec(8, 9, RouterScore::kSoftmax)),
              HasSubstr("'num_experts_per_tok' is 9, want 1 to 8"));
  EXPECT_THAT(error(Grouped(Spec(8, 2, RouterScore::kSoftmax), 3, 1, GroupScore::kBest)),
              HasSubstr("'n_group' is 3, want a divisor of the number of experts, 8"));
  EXPECT_THAT(error(Grouped(Spec(8, 2, RouterScore::kSoftmax), 4, 5, GroupScore::kBest)),
              HasSubstr("'topk_group' is 5, want 1 to 'n_group', 4"));
  EXPECT_THAT(error(Grouped(Spec(8, 3, RouterScore::kSoftmax), 4, 1, GroupScore::kBest)),
              HasSubstr("'num_experts_per_tok' is 3, want 1 to 2"));
}

}  // namespace
}  // namespace pinion
