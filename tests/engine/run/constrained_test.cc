// Sequences with grammars in the engine's loop, through the real helper.

#include "engine/run/constrained.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/strings.h"
#include "engine/run/engine.h"
#include "tests/engine/run/constrained_engine.h"

namespace pinion {
namespace {

using ::testing::HasSubstr;

TEST_F(ConstrainedTest, OutputIsOfTheGrammarAndNeighboursAreAsEver) {
  const auto alone = FreeAlone();
  ASSERT_TRUE(engine_->Add(Ask(kFree)));
  for (uint64_t id = kBound; id < kBound + 6; ++id)
    ASSERT_TRUE(engine_->Add(Ask(id, "[0-9]{3}-[a-c]{1,4}")));
  RunToEnd();
  for (uint64_t id = kBound; id < kBound + 6; ++id) {
    EXPECT_TRUE(std::regex_match(TextOf(id), std::regex("[0-9]{3}-[a-c]{1,4}"))) << TextOf(id);
    EXPECT_EQ(answers_[id].finish, FinishReason::kStop);
  }
  EXPECT_EQ(answers_[kFree].ids, alone);
}

TEST_F(ConstrainedTest, TheGrammarsEndEndsTheAnswerAgainstAnyOtherSetting) {
  Request request = Ask(kBound, "abc");
  request.params.ignore_eos = true;
  request.params.min_tokens = 30;
  ASSERT_TRUE(engine_->Add(std::move(request)));
  RunToEnd();
  EXPECT_EQ(TextOf(kBound), "abc");
  EXPECT_EQ(answers_[kBound].finish, FinishReason::kStop);
}

TEST_F(ConstrainedTest, GrammarsGoOnAfterAPreemption) {
  // Tokens of 4 layers x 2 KV heads x 32 x (K and V) x 4 bytes: less than two sequences need.
  options_.block_size = 16;
  options_.max_model_len = 80;
  options_.kv_cache_bytes = 5 * 16 * 2048;
  options_.prefix_caching = false;
  // Longer than a jump, for which blocks are kept free.
  constexpr const char* kLong = "[0-9]{30}x[a-c]{8}y[0-9]{18}";
  StartEngine(options_);
  for (uint64_t id = kBound; id < kBound + 3; ++id) ASSERT_TRUE(engine_->Add(Ask(id, kLong)));
  RunToEnd();
  EXPECT_GT(engine_->stats().scheduler.preemptions, 0u);
  for (uint64_t id = kBound; id < kBound + 3; ++id)
    EXPECT_TRUE(std::regex_match(TextOf(id), std::regex(kLong))) << TextOf(id);
}

// A request for a grammar behind reasoning that the prompt has begun, which may have so many
// tokens.
Request AskBehindReasoning(uint64_t id, const Tokenizer& tokenizer, int budget) {
  Request request;
  request.id = id;
  request.prompt_ids = *tokenizer.Encode("Once upon <think>", false);
  request.params.max_tokens = 80;
  request.params.temperature = 2;
  request.params.seed = id;
  request.params.thought.budget = budget;
  request.params.thought.begin = *tokenizer.Encode("<think>", false);
  request.params.thought.end = *tokenizer.Encode("</think>", false);
  request.params.thought.forced = request.params.thought.end;
  request.params.thought.in_prompt = 0;
  request.grammar = std::make_shared<Grammar>(Grammar{"regex", "[0-9]{20}x[a-c]{8}y[0-9]{8}"});
  return request;
}

TEST_F(ConstrainedTest, AGrammarWaitsForTheEndOfReasoning) {
  // Few blocks, so that sequences are preempted within their reasoning and behind it.
  options_.block_size = 16;
  options_.max_model_len = 112;
  options_.kv_cache_bytes = 7 * 16 * 2048;
  options_.prefix_caching = false;
  StartEngine(options_);
  const std::vector<int32_t> mark = *tokenizer_->Encode("</think>", false);
  for (uint64_t id = kBound; id < kBound + 4; ++id)
    ASSERT_TRUE(engine_->Add(AskBehindReasoning(id, *tokenizer_, static_cast<int>(5 * id))));
  RunToEnd();
  EXPECT_GT(engine_->stats().scheduler.preemptions, 0u);
  for (uint64_t id = kBound; id < kBound + 4; ++id) {
    ASSERT_EQ(answers_[id].finish, FinishReason::kStop) << TextOf(id);
    std::vector<int32_t>& ids = answers_[id].ids;
    const auto begin = ids.begin() + static_cast<ptrdiff_t>(5 * id);
    EXPECT_TRUE(std::equal(mark.begin(), mark.end(), begin));
    ids.erase(ids.begin(), begin + static_cast<ptrdiff_t>(mark.size()));
    EXPECT_TRUE(std::regex_match(TextOf(id), std::regex("[0-9]{20}x[a-c]{8}y[0-9]{8}")))
        << TextOf(id);
  }
}

TEST_F(ConstrainedTest, AnAnswerOfAGrammarMayBeginWithTheMarkOfReasoning) {
  const std::vector<int32_t> begin = *tokenizer_->Encode("<think>", false);
  for (const bool reasons : {true, false}) {
    Request request = AskBehindReasoning(kBound, *tokenizer_, 3);
    request.params.thought.in_prompt = -1;
    request.params.logit_bias = {{begin.front(), reasons ? 100 : -100}};
    ASSERT_TRUE(engine_->Add(std::move(request)));
    RunToEnd();
    std::vector<int32_t>& ids = answers_[kBound].ids;
    if (reasons) {
      ASSERT_TRUE(std::equal(begin.begin(), begin.end(), ids.begin()))
          << "all of the mark, once it has begun";
      const std::vector<int32_t> mark = *tokenizer_->Encode("</think>", false);
      const auto end = std::search(ids.begin(), ids.end(), mark.begin(), mark.end());
      ASSERT_NE(end, ids.end());
      ids.erase(ids.begin(), end + static_cast<ptrdiff_t>(mark.size()));
    }
    EXPECT_TRUE(std::regex_match(TextOf(kBound), std::regex("[0-9]{20}x[a-c]{8}y[0-9]{8}")))
        << TextOf(kBound);
    answers_.clear();
  }
}

TEST_F(ConstrainedTest, ABadGrammarEndsItsRequestAlone) {
  const auto alone = FreeAlone();
  ASSERT_TRUE(engine_->Add(Ask(kFree)));
  ASSERT_TRUE(engine_->Add(Ask(kBound, "(")));
  RunToEnd();
  EXPECT_EQ(answers_[kBound].finish, FinishReason::kAborted);
  EXPECT_THAT(answers_[kBound].error, HasSubstr("the regex is not supported"));
  EXPECT_TRUE(answers_[kBound].ids.empty());
  EXPECT_EQ(answers_[kFree].ids, alone);
}

TEST_F(ConstrainedTest, ADeadHelperEndsItsAnswersAndIsReplaced) {
  const auto alone = FreeAlone();
  ASSERT_TRUE(engine_->Add(Ask(kFree)));
  ASSERT_TRUE(engine_->Add(Ask(kBound, "[0-9]{50}")));
  while (answers_[kBound].ids.empty()) Step();
  ASSERT_EQ(kill(Helper(), SIGKILL), 0);
  RunToEnd();
  EXPECT_EQ(answers_[kBound].finish, FinishReason::kAborted);
  EXPECT_THAT(answers_[kBound].error, HasSubstr("the process that follows grammars ended"));
  EXPECT_EQ(answers_[kFree].ids, alone);
  ASSERT_TRUE(engine_->Add(Ask(kBound + 1, "[0-9]{3}")));
  RunToEnd();
  EXPECT_TRUE(std::regex_match(TextOf(kBound + 1), std::regex("[0-9]{3}")));
}

TEST_F(ConstrainedTest, AStuckHelperEndsItsAnswers) {
  ASSERT_TRUE(engine_->Add(Ask(kBound, "[0-9]{50}")));
  while (answers_[kBound].ids.empty()) Step();
  ASSERT_EQ(kill(Helper(), SIGSTOP), 0);
  RunToEnd();
  EXPECT_EQ(answers_[kBound].finish, FinishReason::kAborted);
  EXPECT_THAT(answers_[kBound].error, HasSubstr("took too long"));
}

TEST_F(ConstrainedTest, RequestsThatWaitForTheirGrammarCanBeAborted) {
  for (uint64_t id = kBound; id < kBound + 8; ++id) ASSERT_TRUE(engine_->Add(Ask(id, "[0-9]{50}")));
  for (uint64_t id = kBound; id < kBound + 8; ++id) engine_->Abort(id);
  RunToEnd();
  for (uint64_t id = kBound; id < kBound + 8; ++id) {
    EXPECT_EQ(answers_[id].finish, FinishReason::kAborted);
    EXPECT_EQ(answers_[id].error, "");
  }
  ASSERT_TRUE(engine_->Add(Ask(kBound, "abc")));
  answers_.clear();
  RunToEnd();
  EXPECT_EQ(TextOf(kBound), "abc") << "a row of one that was aborted is usable again";
}

TEST_F(ConstrainedTest, RequestsCanBeAbortedWhileAStepComputesTheirTokens) {
  options_.pipeline_parallel = 2;
  StartEngine(options_);
  const auto alone = FreeAlone();
  ASSERT_TRUE(engine_->Add(Ask(kFree)));
  for (uint64_t id = kBound; id < kBound + 6; ++id) ASSERT_TRUE(engine_->Add(Ask(id, "[0-9]{50}")));
  while (answers_[kBound + 5].ids.size() < 3) Step();
  for (uint64_t id = kBound; id < kBound + 6; ++id) engine_->Abort(id);
  ASSERT_TRUE(engine_->Add(Ask(kBound + 9, "abc")));
  RunToEnd();
  for (uint64_t id = kBound; id < kBound + 6; ++id)
    EXPECT_EQ(answers_[id].finish, FinishReason::kAborted);
  EXPECT_EQ(answers_[kFree].ids, alone);
  EXPECT_EQ(TextOf(kBound + 9), "abc");
}

TEST_F(ConstrainedTest, MoreRequestsThanRowsWaitForOne) {
  constexpr uint64_t kCount = Masks::kRows + 3;
  for (uint64_t id = 1; id <= kCount; ++id) {
    Request request = Ask(id, "ab");
    request.params.max_tokens = 8;
    ASSERT_TRUE(engine_->Add(std::move(request)));
  }
  RunToEnd();
  for (uint64_t id = 1; id <= kCount; ++id) EXPECT_EQ(TextOf(id), "ab");
}

}  // namespace
}  // namespace pinion
