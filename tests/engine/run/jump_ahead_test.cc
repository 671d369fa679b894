// Tokens that a grammar forces are computed at once, and answers are as if they came one by one.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/strings.h"
#include "engine/run/engine.h"
#include "tests/engine/run/constrained_engine.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

constexpr const char* kLongKeys =
    R"({"type": "object", "properties": {"customer_identification_number": {"type": "integer", "minimum": 0, "maximum": 99},
        "delivery_address_of_the_customer": {"enum": ["at home", "at work"]},
        "is_to_be_delivered_by_express": {"type": "boolean"}},
        "required": ["customer_identification_number", "delivery_address_of_the_customer",
                     "is_to_be_delivered_by_express"], "additionalProperties": false})";

std::string Model(const char* name) { return StrCat(tests::TestData(), "/models/", name); }

// One request of each kind of grammar, and of each parameter that looks at the tokens before.
std::vector<Request> RequestsWithoutMuchChoice() {
  const std::vector<Grammar> grammars = {{"json", kLongKeys},
                                         {"regex", "[0-9]{3}-abcdefghij-[a-c]{1,4} the end of it"},
                                         {"choice", R"(["the quick brown fox", "the quiet one"])"}};
  std::vector<std::function<void(SamplingParams&)>> changes = {
      [](SamplingParams& params) { params.temperature = 0; },
      [](SamplingParams& params) { params.top_k = 5; },
      [](SamplingParams& params) { params.frequency_penalty = 1.5; },
      [](SamplingParams& params) { params.repetition_penalty = 1.8; },
      [](SamplingParams& params) {
        params.repetition_penalty = 1.8;
        params.penalty_window = 9;
      },
      [](SamplingParams& params) {
        params.bad_words_ids = {{48}, {17, 18}};
      },
      [](SamplingParams& params) { params.min_tokens = 70; },
      [](SamplingParams& params) { params.max_tokens = 9; },
      [](SamplingParams& params) { params.max_tokens = 1; },
      [](SamplingParams& params) {
        for (int32_t id = 70; id < 100; ++id) params.stop_token_ids.push_back(id);
      },
  };
  std::vector<Request> requests;
  for (const Grammar& grammar : grammars)
    for (const auto& change : changes) {
      Request request;
      request.id = kBound + requests.size();
      request.prompt_ids = {5, 6, 7};
      request.params.max_tokens = 90;
      request.params.temperature = 2;
      request.params.seed = 1000 + requests.size();
      change(request.params);
      request.grammar = std::make_shared<Grammar>(grammar);
      requests.push_back(std::move(request));
    }
  return requests;
}

class JumpAheadTest : public ConstrainedTest {
 protected:
  struct Ran {
    std::map<uint64_t, Answer> answers;
    uint64_t steps = 0, preemptions = 0;
  };

  // The answers to these requests, all at once, and what they took. Log-probabilities have each
  // token computed by itself.
  Ran Run(std::vector<Request> requests, bool one_by_one) {
    const EngineStats before = engine_->stats();
    for (Request& request : requests) {
      request.params.logprobs = one_by_one ? 0 : -1;
      EXPECT_TRUE(engine_->Add(std::move(request)));
    }
    RunToEnd();
    const EngineStats after = engine_->stats();
    return {std::exchange(answers_, {}), after.steps - before.steps,
            after.scheduler.preemptions - before.scheduler.preemptions};
  }

  // Returns the preemptions of the sequences that jumped.
  uint64_t ExpectTheSame(const std::vector<Request>& requests) {
    auto [jumped, few, preemptions] = Run(requests, /*one_by_one=*/false);
    auto [sampled, many, others] = Run(requests, /*one_by_one=*/true);
    EXPECT_LT(few, many);
    for (const Request& request : requests) {
      EXPECT_EQ(jumped[request.id].ids, sampled[request.id].ids) << request.id;
      EXPECT_EQ(jumped[request.id].finish, sampled[request.id].finish) << request.id;
      EXPECT_EQ(jumped[request.id].error, "");
    }
    return preemptions;
  }
};

TEST_F(JumpAheadTest, AnswersAreThoseOfTokenByToken) { ExpectTheSame(RequestsWithoutMuchChoice()); }

TEST_F(JumpAheadTest, AnswersAreTheSameAfterPreemptions) {
  // Few blocks, and no room in a step for all that has been jumped over.
  options_.block_size = 16;
  options_.max_model_len = 96;
  options_.kv_cache_bytes = 8 * 16 * 2048;
  options_.max_num_batched_tokens = 16;
  options_.prefix_caching = false;
  StartEngine(options_);
  EXPECT_GT(ExpectTheSame(RequestsWithoutMuchChoice()), 0u);
}

struct JumpCase {
  const char* name;
  void (*change)(EngineOptions& options);
};
void PrintTo(const JumpCase& one, std::ostream* out) { *out << one.name; }

constexpr JumpCase kJumpCases[] = {
    {"RecurrentStates", [](EngineOptions& options) { options.model = Model("qwen3.5-text"); }},
    {"Convolutions", [](EngineOptions& options) { options.model = Model("lfm2"); }},
    // Windows of 16 tokens: a jump is longer.
    {"Windows", [](EngineOptions& options) { options.model = Model("gemma3"); }},
    {"Stages", [](EngineOptions& options) { options.pipeline_parallel = 2; }},
    {"Ranks", [](EngineOptions& options) { options.tensor_parallel = 2; }},
    // With room in a step for two jumps.
    {"BoundedSteps", [](EngineOptions& options) { options.max_step_ms = 20; }},
    {"WindowsInBoundedSteps",
     [](EngineOptions& options) {
       options.model = Model("gemma3");
       options.max_step_ms = 20;
     }},
};

class JumpAheadCases : public JumpAheadTest, public ::testing::WithParamInterface<JumpCase> {};

TEST_P(JumpAheadCases, AnswersAreThoseOfTokenByToken) {
  GetParam().change(options_);
  StartEngine(options_);
  ExpectTheSame(RequestsWithoutMuchChoice());
}

INSTANTIATE_TEST_SUITE_P(Of, JumpAheadCases, ::testing::ValuesIn(kJumpCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(JumpAheadTest, AnswersOfStatesAreTheSameAfterPreemptions) {
  options_.model = Model("qwen3.5-text");
  options_.max_num_seqs = 6;
  options_.block_size = 16;
  options_.max_model_len = 96;
  options_.max_num_batched_tokens = 16;
  options_.prefix_caching = false;
  // The states of 3 sequences, and 7 blocks, of which one takes up to 6.
  options_.kv_cache_bytes = 106 << 10;
  StartEngine(options_);
  EXPECT_GT(ExpectTheSame(RequestsWithoutMuchChoice()), 0u);
}

TEST_F(JumpAheadTest, ALiteralTakesOneStepHoweverLongItIs) {
  std::vector<Request> requests;
  requests.push_back(Ask(kBound));
  requests[0].params.ignore_eos = false;
  requests[0].params.max_tokens = 200;
  requests[0].grammar = std::make_shared<Grammar>(Grammar{"json", kLongKeys});
  auto [jumped, few, no_preemptions] = Run(requests, /*one_by_one=*/false);
  auto [sampled, many, none] = Run(requests, /*one_by_one=*/true);
  answers_ = jumped;
  EXPECT_EQ(jumped[kBound].ids, sampled[kBound].ids) << TextOf(kBound);
  EXPECT_EQ(jumped[kBound].finish, FinishReason::kStop);
  EXPECT_EQ(many, sampled[kBound].ids.size()) << "a step a token";
  // The tokens of which the model has a choice, and the first of each run of 32 without one.
  EXPECT_LE(few * 3, many) << TextOf(kBound);
}

TEST_F(JumpAheadTest, EveryTokenIsAnEventAndCounts) {
  Request request = Ask(kBound, "abcdefghijklmnop");
  ASSERT_TRUE(engine_->Add(std::move(request)));
  const uint64_t before = engine_->stats().output_tokens;
  size_t tokens = 0;
  bool ended = false;
  while (!engine_->idle()) {
    std::vector<TokenEvent> events;
    engine_->Step(events);
    for (const TokenEvent& event : events) {
      EXPECT_FALSE(ended);
      EXPECT_TRUE(event.has_token);
      EXPECT_EQ(event.output_tokens, ++tokens);
      ended = event.finish != FinishReason::kNone;
    }
  }
  EXPECT_TRUE(ended);
  EXPECT_GT(tokens, 3u);
  EXPECT_EQ(engine_->stats().output_tokens - before, tokens);
}

TEST_F(JumpAheadTest, NeighboursAreAsEver) {
  const auto alone = FreeAlone();
  ASSERT_TRUE(engine_->Add(Ask(kFree)));
  for (Request& request : RequestsWithoutMuchChoice())
    ASSERT_TRUE(engine_->Add(std::move(request)));
  RunToEnd();
  EXPECT_EQ(answers_[kFree].ids, alone);
}

}  // namespace
}  // namespace pinion
