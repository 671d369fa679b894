// Sequences with grammars in the engine's loop, through the real helper.

#include "engine/run/constrained.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/strings.h"
#include "engine/run/engine.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kFree = 1, kBound = 2;

struct Answer {
  std::vector<int32_t> ids;
  std::string error;
  FinishReason finish = FinishReason::kNone;
};

class ConstrainedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto binary = std::filesystem::read_symlink("/proc/self/exe").replace_filename("pinion");
    setenv("PINION_BINARY", binary.c_str(), 0);
    setenv("OMP_NUM_THREADS", "1", 1);
    EngineOptions options;
    if (const char* isa = std::getenv("PINION_TEST_ISA")) options.isa = isa;
    options.model = tests::TestData() + "/models/tiny-trained";
    options.threads_bind = "nobind";
    options.dtype = "float32";
    options.max_model_len = 256;
    StartEngine(options);
    if (auto can = CanFollowGrammars(GrammarVocabularyOf(engine_->model())); !can)
      GTEST_SKIP() << can.error().message;
    tokenizer_ = *OpenTokenizer(engine_->model());
    options_ = options;
  }

  void StartEngine(const EngineOptions& options) {
    engine_.reset();
    auto started = Engine::Start(options);
    ASSERT_TRUE(started) << started.error().message;
    engine_ = std::move(*started);
  }

  // A request of 60 tokens, for a regular expression or free.
  static Request Ask(uint64_t id, const char* regex = nullptr) {
    Request request;
    request.id = id;
    request.prompt_ids = {5, 6, 7};
    request.params.max_tokens = 60;
    if (regex) {
      request.grammar = std::make_shared<Grammar>(Grammar{"regex", regex});
      request.params.temperature = 2;
      request.params.seed = id;
    } else {
      request.params.ignore_eos = true;
    }
    return request;
  }

  void Step() {
    std::vector<TokenEvent> events;
    engine_->Step(events);
    for (TokenEvent& event : events) {
      Answer& answer = answers_[event.request];
      EXPECT_EQ(answer.finish, FinishReason::kNone) << "an event after the last one";
      if (event.has_token) answer.ids.push_back(event.token.id);
      answer.finish = event.finish;
      answer.error = event.error;
    }
  }
  void RunToEnd() {
    while (!engine_->idle()) Step();
  }
  std::string TextOf(uint64_t id) {
    std::vector<int32_t> ids = answers_[id].ids;
    if (answers_[id].finish == FinishReason::kStop) ids.pop_back();
    return tokenizer_->Decode(ids, false);
  }
  std::vector<int32_t> FreeAlone() {
    EXPECT_TRUE(engine_->Add(Ask(kFree)));
    RunToEnd();
    return std::exchange(answers_, {})[kFree].ids;
  }

  // The helper, this process's only child.
  static pid_t Helper() {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream children(task.path() / "children");
      if (pid_t pid = 0; children >> pid) return pid;
    }
    return 0;
  }

  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::map<uint64_t, Answer> answers_;
};

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

TEST_F(ConstrainedTest, TheGrammarsEndEndsTheAnswerWhateverElseIsAsked) {
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
  options_.max_model_len = 96;
  options_.kv_cache_bytes = 6 * 16 * 2048;
  options_.prefix_caching = false;
  StartEngine(options_);
  for (uint64_t id = kBound; id < kBound + 3; ++id)
    ASSERT_TRUE(engine_->Add(Ask(id, "[0-9]{20}x[a-c]{8}y[0-9]{8}")));
  RunToEnd();
  EXPECT_GT(engine_->stats().scheduler.preemptions, 0u);
  for (uint64_t id = kBound; id < kBound + 3; ++id)
    EXPECT_TRUE(std::regex_match(TextOf(id), std::regex("[0-9]{20}x[a-c]{8}y[0-9]{8}")))
        << TextOf(id);
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

TEST_F(ConstrainedTest, ADeadHelperEndsWhatItFollowedAndIsReplaced) {
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

TEST_F(ConstrainedTest, AStuckHelperEndsWhatItFollowed) {
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

// ---- Tokens that the grammar leaves no choice of -----------------------------------------------

constexpr const char* kLongKeys =
    R"({"type": "object", "properties": {"customer_identification_number": {"type": "integer", "minimum": 0, "maximum": 99},
        "delivery_address_of_the_customer": {"enum": ["at home", "at work"]},
        "is_to_be_delivered_by_express": {"type": "boolean"}},
        "required": ["customer_identification_number", "delivery_address_of_the_customer",
                     "is_to_be_delivered_by_express"], "additionalProperties": false})";

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
  // The answers to these requests, all at once, and the steps that they took. Log-probabilities
  // have each token computed by itself.
  std::pair<std::map<uint64_t, Answer>, uint64_t> Run(std::vector<Request> requests,
                                                      bool one_by_one) {
    const uint64_t before = engine_->stats().steps;
    for (Request& request : requests) {
      request.params.logprobs = one_by_one ? 0 : -1;
      EXPECT_TRUE(engine_->Add(std::move(request)));
    }
    RunToEnd();
    return {std::exchange(answers_, {}), engine_->stats().steps - before};
  }

  void ExpectTheSame(const std::vector<Request>& requests) {
    auto [jumped, few] = Run(requests, /*one_by_one=*/false);
    auto [sampled, many] = Run(requests, /*one_by_one=*/true);
    EXPECT_LT(few, many);
    for (const Request& request : requests) {
      EXPECT_EQ(jumped[request.id].ids, sampled[request.id].ids) << request.id;
      EXPECT_EQ(jumped[request.id].finish, sampled[request.id].finish) << request.id;
      EXPECT_EQ(jumped[request.id].error, "");
    }
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
  ExpectTheSame(RequestsWithoutMuchChoice());
  EXPECT_GT(engine_->stats().scheduler.preemptions, 0u);
}

TEST_F(JumpAheadTest, ALiteralTakesOneStepHoweverLongItIs) {
  std::vector<Request> requests;
  requests.push_back(Ask(kBound));
  requests[0].params.ignore_eos = false;
  requests[0].params.max_tokens = 200;
  requests[0].grammar = std::make_shared<Grammar>(Grammar{"json", kLongKeys});
  auto [jumped, few] = Run(requests, /*one_by_one=*/false);
  auto [sampled, many] = Run(requests, /*one_by_one=*/true);
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
