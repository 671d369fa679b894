#include "engine/sample/thought.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "engine/base/wire.h"
#include "engine/sample/sampler.h"
#include "engine/sample/wire.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;

constexpr int32_t kBlank = 0, kBegin = 1, kEndA = 2, kEndB = 3, kWord = 4, kOther = 5;
constexpr size_t kVocabulary = 8;

ThoughtRules Rules(int budget) {
  ThoughtRules rules;
  rules.budget = budget;
  rules.begin = {kBegin};
  rules.end = rules.forced = {kEndA, kEndB};
  rules.blank = {kBlank};
  return rules;
}

// The answer of a model that would write `wished`, if its reasoning is tracked.
std::vector<int32_t> Follow(const ThoughtRules& rules, const std::vector<int32_t>& wished) {
  ThoughtTracker tracker(rules);
  std::vector<int32_t> answer;
  for (const int32_t token : wished) {
    answer.push_back(tracker.forced().value_or(token));
    tracker.Take(answer.back());
  }
  return answer;
}

TEST(ThoughtTracker, EndsReasoningAfterExactlyItsBudget) {
  for (const int budget : {0, 1, 2, 5}) {
    std::vector<int32_t> want = {kBegin};
    want.insert(want.end(), static_cast<size_t>(budget), kWord);
    want.insert(want.end(), {kEndA, kEndB});
    const std::vector<int32_t> wished = [&] {
      std::vector<int32_t> tokens = {kBegin};
      tokens.resize(want.size() + 3, kWord);
      return tokens;
    }();
    want.insert(want.end(), {kWord, kWord, kWord});
    EXPECT_EQ(Follow(Rules(budget), wished), want) << "budget " << budget;
  }
}

TEST(ThoughtTracker, LeavesReasoningAloneThatEndsInTime) {
  const std::vector<int32_t> wished = {kBegin, kWord, kWord, kEndA, kEndB,
                                       kWord,  kWord, kWord, kWord};
  EXPECT_EQ(Follow(Rules(4), wished), wished);
  EXPECT_EQ(Follow(Rules(-1), wished), wished);
}

TEST(ThoughtTracker, CompletesAMarkThatHasBegunAsTheBudgetRunsOut) {
  const std::vector<int32_t> wished = {kBegin, kWord, kEndA, kWord, kWord, kWord};
  EXPECT_THAT(Follow(Rules(2), wished), ElementsAre(kBegin, kWord, kEndA, kEndB, kWord, kWord));
}

TEST(ThoughtTracker, CountsTheReasoningOfThePrompt) {
  ThoughtRules rules = Rules(3);
  rules.in_prompt = 2;
  EXPECT_THAT(Follow(rules, {kWord, kWord, kWord, kWord}), ElementsAre(kWord, kEndA, kEndB, kWord));
  rules.in_prompt = 9;
  EXPECT_THAT(Follow(rules, {kWord, kWord, kWord}), ElementsAre(kEndA, kEndB, kWord));
}

TEST(ThoughtTracker, TakesNoMarkForReasoningInsideAnAnswer) {
  const std::vector<int32_t> wished = {kWord, kBegin, kWord, kWord, kWord};
  EXPECT_EQ(Follow(Rules(0), wished), wished);
  EXPECT_THAT(Follow(Rules(0), {kBlank, kBlank, kBegin, kWord, kWord}),
              ElementsAre(kBlank, kBlank, kBegin, kEndA, kEndB))
      << "white space is no answer yet";
  const std::vector<int32_t> again = {kBegin, kEndA, kEndB, kBegin, kWord, kWord};
  EXPECT_EQ(Follow(Rules(2), again), again) << "there is one reasoning, at the beginning";
}

TEST(ThoughtTracker, NeedsAllTokensOfAMark) {
  ThoughtRules rules = Rules(0);
  rules.begin = {kBegin, kOther};
  const std::vector<int32_t> wished = {kBegin, kWord, kOther, kWord};
  EXPECT_EQ(Follow(rules, wished), wished);
  EXPECT_THAT(Follow(rules, {kBegin, kOther, kWord, kWord, kWord}),
              ElementsAre(kBegin, kOther, kEndA, kEndB, kWord));
}

TEST(ThoughtTracker, FindsAMarkBehindItsOwnBeginning) {
  ThoughtRules rules = Rules(9);
  rules.end = rules.forced = {kEndA, kEndA, kEndB};
  ThoughtTracker tracker(rules);
  for (const int32_t token : {kBegin, kEndA, kEndA, kEndA}) tracker.Take(token);
  EXPECT_TRUE(tracker.within());
  tracker.Take(kEndB);
  EXPECT_FALSE(tracker.within());
}

TEST(ThoughtTracker, AddsUpReasoningInSeveralMessages) {
  ThoughtRules rules = Rules(3);
  rules.anywhere = true;
  rules.end = {kEndA};
  rules.forced = {kEndA, kOther};
  EXPECT_THAT(
      Follow(rules, {kBegin, kWord, kWord, kEndA, kWord, kBegin, kWord, kWord, kWord, kWord}),
      ElementsAre(kBegin, kWord, kWord, kEndA, kWord, kBegin, kWord, kEndA, kOther, kWord))
      << "the second has what the first has left";
}

// Logits that like token kWord best, and the others the less the higher their ids are.
std::vector<float> Logits() {
  std::vector<float> logits(kVocabulary);
  for (size_t id = 0; id < kVocabulary; ++id) logits[id] = -0.25F * static_cast<float>(id);
  logits[kWord] = 2;
  return logits;
}

std::vector<SampledToken> Sample(const SamplingParams& params, size_t count) {
  Sampler sampler(params, /*seed=*/7, /*eos_ids=*/{}, {});
  std::vector<SampledToken> tokens;
  for (size_t i = 0; i < count; ++i) {
    std::vector<float> logits = Logits();
    tokens.push_back(sampler.Sample(kernels::TableFor(kernels::Isa::kScalar), logits));
  }
  return tokens;
}

TEST(Sampler, ForcesTheEndOfReasoningAndChangesNothingElse) {
  SamplingParams params;
  params.temperature = 1;
  params.logprobs = 2;
  const std::vector<SampledToken> free = Sample(params, 12);
  params.thought = Rules(5);
  params.thought.in_prompt = 0;
  const std::vector<SampledToken> bounded = Sample(params, 12);
  for (size_t i = 0; i < 12; ++i) {
    const bool forced = i == 5 || i == 6;
    EXPECT_EQ(bounded[i].id, forced ? (i == 5 ? kEndA : kEndB) : free[i].id) << i;
    EXPECT_EQ(bounded[i].top, free[i].top) << "probabilities are the model's";
  }
  EXPECT_LT(bounded[6].logprob, bounded[5].logprob) << "of the token that was forced";
}

TEST(Sampler, ForcesTheEndOfReasoningAgainstAnyRestriction) {
  SamplingParams params;
  params.allowed_token_ids = {kWord};
  params.bad_words_ids = {{kEndA}};
  params.min_tokens = 9;
  params.max_tokens = 9;
  params.stop_token_ids = {kEndB};
  params.thought = Rules(0);
  params.thought.in_prompt = 0;
  const std::vector<SampledToken> tokens = Sample(params, 3);
  EXPECT_EQ(tokens[0].id, kEndA);
  EXPECT_EQ(tokens[1].id, kEndB);
  EXPECT_EQ(tokens[2].id, kWord);
}

TEST(SamplingWire, CarriesTheRulesOfReasoning) {
  SamplingParams params;
  params.thought = Rules(5);
  params.thought.anywhere = true;
  params.thought.in_prompt = 3;
  WireWriter writer;
  writer(params);
  SamplingParams read;
  WireReader reader(writer.bytes());
  reader(read);
  EXPECT_TRUE(reader.ok() && reader.at_end());
  EXPECT_EQ(read.thought, params.thought);
}

}  // namespace
}  // namespace pinion
