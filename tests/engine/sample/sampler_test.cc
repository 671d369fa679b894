// Changes to a sampler's logits before a draw, and its report of a token.
#include "engine/sample/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "tests/engine/sample/draws.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// ---- Adjustments ----------------------------------------------------------------------------

TEST(Sampler, MasksEosAndStopIdsUntilMinTokens) {
  SamplingParams params;
  params.min_tokens = 2;
  params.max_tokens = 5;
  params.stop_token_ids = {1, 700};  // 700 is outside this vocabulary
  Sampler sampler(params, 1, {2}, {});
  const std::vector<float> logits = {0, 4, 5, 1};
  std::vector<int32_t> ids;
  for (int i = 0; i < 3; ++i) {
    std::vector<float> scratch = logits;
    ids.push_back(sampler.Sample(Scalar(), scratch).id);
  }
  EXPECT_THAT(ids, ElementsAre(3, 3, 2));
  EXPECT_EQ(sampler.drawn(), 3u);
}

TEST(Sampler, AddsLogitBiasWithinTheVocabulary) {
  SamplingParams params;
  params.logit_bias = {{0, 100}, {1, -100}, {99999, 100}};
  EXPECT_EQ(SampleOnce(params, {0, 50, 60}).id, 0);
}

TEST(Sampler, ChoosesAmongTheAllowedOnly) {
  SamplingParams params;
  params.allowed_token_ids = {1, 2, 1, 99999};
  params.logprobs = 1;
  const SampledToken token = SampleOnce(params, {9, -3, -2, 8});
  EXPECT_EQ(token.id, 2);
  ASSERT_EQ(token.top.size(), 1u);
  EXPECT_EQ(token.top[0].first, 0) << "log-probabilities are those of the raw logits";
  params.temperature = 1;
  for (const auto& [id, count] : Draw(params, {9, -3, -2, 8}, 200)) EXPECT_TRUE(id == 1 || id == 2);
}

TEST(Sampler, NeverCompletesABadWord) {
  SamplingParams params;
  params.bad_words_ids = {{3}, {2, 2}, {0, 2, 1}, {99999}, {0, 1}};
  Sampler sampler(params, 1, {}, {});
  std::vector<int32_t> ids;
  for (int i = 0; i < 4; ++i) {
    std::vector<float> scratch = {5, 6, 7, 8};
    ids.push_back(sampler.Sample(Scalar(), scratch).id);
  }
  EXPECT_THAT(ids, ElementsAre(2, 1, 2, 1));
  std::vector<float> after_two = {5, 0, 7, 8};  // ... 1, then 2, which 2 may not follow
  EXPECT_EQ(sampler.Sample(Scalar(), after_two).id, 2);
  after_two = {5, 0, 7, 8};
  EXPECT_EQ(sampler.Sample(Scalar(), after_two).id, 0);
  after_two = {1, 5, 0, 8};  // after 0 neither 1 ...
  EXPECT_EQ(sampler.Sample(Scalar(), after_two).id, 0);
}

TEST(Sampler, RatesATokenAmongTheOthers) {
  const std::vector<float> logits = {1, 3, 2, 3};
  const SampledToken third = RateToken(Scalar(), logits, 2, 2);
  EXPECT_EQ(third.rank, 3u);
  EXPECT_NEAR(third.logprob, 2 - std::log(std::exp(1) + 2 * std::exp(3) + std::exp(2)), 1e-5);
  EXPECT_THAT(third.top, ElementsAre(Pair(1, testing::_), Pair(3, testing::_)));
  EXPECT_EQ(RateToken(Scalar(), logits, 3, 0).rank, 1u);
}

TEST(Sampler, PenalisesRepetitionOfPromptAndOutputOnce) {
  SamplingParams params;
  params.repetition_penalty = 2;
  const std::vector<int32_t> prompt = {0, 0, 1};
  Sampler sampler(params, 1, {}, prompt);
  // Positive logits are divided, negative multiplied: 3 -> 1.5, -0.4 -> -0.8, once however often.
  std::vector<float> logits = {3, -0.4f, 1.4f, 1.2f};
  EXPECT_EQ(sampler.Sample(Scalar(), logits).id, 0);
  EXPECT_FLOAT_EQ(logits[0], 1.5f);
  EXPECT_FLOAT_EQ(logits[1], -0.8f);
  EXPECT_FLOAT_EQ(logits[2], 1.4f);
  logits = {2, 0, 3, 1};
  EXPECT_EQ(sampler.Sample(Scalar(), logits).id, 2);
  logits = {2, 0, 1.6f, 1.1f};  // 2 is in the output now, 0 in both
  EXPECT_EQ(sampler.Sample(Scalar(), logits).id, 3);
  EXPECT_FLOAT_EQ(logits[0], 1.f);
  EXPECT_FLOAT_EQ(logits[2], 0.8f);
}

TEST(Sampler, PenalisesPresenceAndFrequencyOfTheOutputOnly) {
  SamplingParams params;
  params.presence_penalty = 0.5;
  params.frequency_penalty = 0.25;
  const std::vector<int32_t> prompt = {0};
  Sampler sampler(params, 1, {}, prompt);
  std::vector<float> logits;
  for (const float want : {5.f, 4.25f, 4.f, 3.75f}) {  // -0.5 once, -0.25 a time
    logits = {5, 0, 0};
    EXPECT_EQ(sampler.Sample(Scalar(), logits).id, 0);
    EXPECT_FLOAT_EQ(logits[0], want);
  }
}

TEST(Sampler, PenalisesTokensOfPromptAndOutputWithinItsWindow) {
  SamplingParams params;
  params.repetition_penalty = 2;
  params.presence_penalty = 0.5;
  params.frequency_penalty = 0.25;
  params.penalty_window = 3;
  const std::vector<int32_t> prompt = {3, 0, 1, 1};  // the window sees 0, 1, 1
  Sampler sampler(params, 1, {}, prompt);
  std::vector<float> logits = {4, 4, 9, 4};
  EXPECT_EQ(sampler.Sample(Scalar(), logits).id, 2);
  EXPECT_THAT(logits, ElementsAre(2 - 0.75f, 2 - 1.f, 9, 4));
  logits = {4, 4, 4, 9};  // now 1, 1, 2
  EXPECT_EQ(sampler.Sample(Scalar(), logits).id, 3);
  EXPECT_THAT(logits, ElementsAre(4, 2 - 1.f, 2 - 0.75f, 9));
  logits = {4, 4, 4, 4};  // now 1, 2, 3
  EXPECT_EQ(sampler.Sample(Scalar(), logits).id, 0);
  EXPECT_THAT(logits, ElementsAre(4, 1.25f, 1.25f, 1.25f));
}

TEST(Sampler, PenalisesNothingWithoutAWindow) {
  SamplingParams params;
  params.repetition_penalty = 2;
  params.presence_penalty = 2;
  params.penalty_window = 0;
  const std::vector<int32_t> prompt = {0};
  Sampler sampler(params, 1, {}, prompt);
  for (int i = 0; i < 2; ++i) {
    std::vector<float> logits = {4, 3};
    EXPECT_EQ(sampler.Sample(Scalar(), logits).id, 0);
    EXPECT_THAT(logits, ElementsAre(4, 3));
  }
}

// ---- Logprobs -------------------------------------------------------------------------------

TEST(Sampler, GivesLogprobsOfTheRawLogits) {
  SamplingParams params = AtTemperature(0.3);
  params.logprobs = 2;
  params.logit_bias = {{3, 100}};
  params.top_k = 1;
  const std::vector<float> logits = {1, 2, 2, 0};
  const SampledToken token = SampleOnce(params, logits);
  const double log_sum = std::log(std::exp(1.) + 2 * std::exp(2.) + 1);
  EXPECT_EQ(token.id, 3) << "chosen by its bias, reported without it";
  EXPECT_NEAR(token.logprob, 0 - log_sum, 1e-6);
  ASSERT_EQ(token.top.size(), 2u);
  EXPECT_EQ(token.top[0].first, 1) << "of equals the lower id first";
  EXPECT_EQ(token.top[1].first, 2);
  EXPECT_NEAR(token.top[0].second, 2 - log_sum, 1e-6);
}

TEST(Sampler, GivesTheRequestedNumberOfLogprobs) {
  SamplingParams params;
  EXPECT_EQ(SampleOnce(params, {1, 2}).logprob, 0);
  params.logprobs = 0;
  EXPECT_LT(SampleOnce(params, {1, 2}).logprob, 0);
  EXPECT_THAT(SampleOnce(params, {1, 2}).top, IsEmpty());
  params.logprobs = 20;
  EXPECT_EQ(SampleOnce(params, {1, 2, 3}).top.size(), 3u) << "all that there are";
}

TEST(Sampler, AMaskAllowsItsTokensAlone) {
  SamplingParams params;
  params.temperature = 2;
  params.logit_bias = {{0, 100.0}};
  Sampler sampler(params, 1, {}, {});
  const std::vector<uint32_t> mask{1u << 1 | 1u << 31, 1u << 1};
  std::map<int32_t, int> counts;
  for (int i = 0; i < 300; ++i) {
    std::vector<float> logits(70, 0.0f);
    ++counts[sampler.Sample(Scalar(), logits, mask).id];
  }
  ASSERT_EQ(counts.size(), 3u);
  EXPECT_TRUE(counts.contains(1) && counts.contains(31) && counts.contains(33));
}

TEST(Sampler, TokensThatAreTakenCountAsDrawnOnes) {
  SamplingParams params;
  params.temperature = 1.5;
  params.frequency_penalty = 0.7;
  params.repetition_penalty = 1.4;
  params.min_tokens = 6;
  params.bad_words_ids = {{2, 5}};
  std::mt19937 rng(20261126);
  std::normal_distribution<float> any;
  const std::vector<int32_t> eos = {0}, prompt = {3, 4};
  Sampler drawing(params, 9, eos, prompt), taking(params, 9, eos, prompt);
  for (int i = 0; i < 200; ++i) {
    std::vector<float> logits(32);
    for (float& logit : logits) logit = any(rng);
    const int32_t forced = i % 7;
    if (i % 3 != 0) {
      const uint32_t only[] = {1u << forced};
      ASSERT_EQ(drawing.Sample(Scalar(), logits, only).id, forced);
      taking.Take(forced);
      continue;
    }
    std::vector<float> same = logits;
    ASSERT_EQ(drawing.Sample(Scalar(), logits).id, taking.Sample(Scalar(), same).id) << i;
  }
}

TEST(Sampler, TokensPastAMasksEndAreForbidden) {
  std::vector<float> logits(70, 0.0f);
  logits[69] = 9;
  const std::vector<uint32_t> mask{1u << 2, 0};
  EXPECT_EQ(Sampler({}, 1, {}, {}).Sample(Scalar(), logits, mask).id, 2);
}

TEST(Sampler, AMaskThatAllowsOnlyTheEndOutweighsMinTokens) {
  SamplingParams params;
  params.min_tokens = 5;
  std::vector<float> logits{1, 2, 3, 4};
  const std::vector<uint32_t> mask{1u << 2};
  EXPECT_EQ(Sampler(params, 1, {2}, {}).Sample(Scalar(), logits, mask).id, 2);
}

TEST(Sampler, MinTokensHoldsIfAMaskAllowsMoreThanTheEnd) {
  SamplingParams params;
  params.min_tokens = 5;
  std::vector<float> logits{9, 2, 3, 4};
  const std::vector<uint32_t> mask{0b0011};
  EXPECT_EQ(Sampler(params, 1, {0}, {}).Sample(Scalar(), logits, mask).id, 1);
}

}  // namespace
}  // namespace pinion
