// Weights that are NaN: a request that meets them ends with an error, and no other one notices.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <map>

#include "engine/run/embed.h"
#include "engine/run/generate.h"
#include "engine/run/score.h"
#include "tests/engine/run/broken_token.h"
#include "tests/engine/run/pooling_golden.h"
#include "tests/engine/run/started_engine.h"
#include "tests/engine/run/test_target.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr int32_t kBroken = 77;
constexpr uint64_t kFails = 100;  // the id of the request that has it
const char* const kError =
    "the logits are not finite: weights of the model are NaN or infinite, or values were too large "
    "for float32; check the checkpoint's files";

EngineOptions OptionsFor(const std::string& folder) {
  setenv("OMP_NUM_THREADS", "1", 1);
  EngineOptions options;
  options.model = folder;
  options.dtype = "float32";
  options.threads_bind = "nobind";
  options.max_model_len = 128;
  options.kv_cache_bytes = 32 << 20;
  testing::SetTestTarget(options);
  return options;
}

// Without the broken token, from which no output of them continues either.
std::vector<Request> SoundRequests() {
  std::vector<Request> requests;
  for (uint64_t id = 0; id < 3; ++id) {
    Request request;
    request.id = id;
    for (int32_t i = 0; i < 9 + 5 * static_cast<int32_t>(id); ++i)
      request.prompt_ids.push_back(3 + (i * 31 + static_cast<int32_t>(id) * 7) % 70);
    request.params.max_tokens = 12;
    request.params.ignore_eos = true;
    request.params.logit_bias = {{kBroken, -100}};
    requests.push_back(std::move(request));
  }
  return requests;
}

Request BrokenRequest() {
  Request request;
  request.id = kFails;
  request.prompt_ids = {5, 6, 7, 8, 9, 10, kBroken, 11, 12, 13};
  request.params.max_tokens = 12;
  return request;
}

struct RequestEnd {
  std::vector<int32_t> ids;
  size_t rated = 0;
  std::vector<float> pooled;
  FinishReason finish = FinishReason::kNone;
  std::string error;
  bool operator==(const RequestEnd&) const = default;
};

std::map<uint64_t, RequestEnd> EndsOf(Engine& engine, const std::vector<Request>& requests) {
  for (const Request& request : requests) CHECK(engine.Add(request));
  std::map<uint64_t, RequestEnd> answers;
  std::vector<TokenEvent> events;
  while (!engine.idle()) {
    events.clear();
    engine.Step(events);
    for (TokenEvent& event : events) {
      RequestEnd& answer = answers[event.request];
      EXPECT_EQ(answer.finish, FinishReason::kNone) << "an event after the last one";
      if (event.has_token) answer.ids.push_back(event.token.id);
      answer.rated += event.rated_prompt.size();
      answer.finish = event.finish;
      answer.error = event.error;
      answer.pooled = std::move(event.pooled);
      EXPECT_EQ(event.output_tokens, answer.ids.size());
    }
  }
  EXPECT_EQ(engine.stats().blocks_used, 0u);
  return answers;
}

// The sound requests beside the broken one are answered as without it.
void ExpectOnlyOneFails(Engine& engine, const Request& broken) {
  const auto alone = EndsOf(engine, SoundRequests());
  ASSERT_EQ(alone.size(), 3u);
  for (const auto& [id, answer] : alone) ASSERT_EQ(answer.error, "") << id;
  engine.DropPrefixCache();
  std::vector<Request> requests = SoundRequests();
  requests.insert(requests.begin() + 1, broken);
  auto together = EndsOf(engine, requests);
  const RequestEnd failed = together[kFails];
  together.erase(kFails);
  EXPECT_EQ(together, alone);
  EXPECT_EQ(failed.finish, FinishReason::kAborted);
  EXPECT_THAT(failed.error, StartsWith("the logits are not finite: "));
  EXPECT_THAT(failed.ids, IsEmpty());
}

std::vector<std::string> UntiedFixtures() {
  std::vector<std::string> names;
  for (const std::string& name : tests::ModelFixtures())
    if (!FindModel(tests::TestData() + "/models/" + name).value().spec.tied_head)
      names.push_back(name);
  return names;
}

class NotFinite : public ::testing::TestWithParam<std::string> {};

TEST_P(NotFinite, OnlyTheRequestThatMeetsItFails) {
  const BrokenToken model(tests::TestData() + "/models/" + GetParam(), kBroken);
  ExpectOnlyOneFails(*Start(OptionsFor(model.folder())), BrokenRequest());
}

INSTANTIATE_TEST_SUITE_P(All, NotFinite, ::testing::ValuesIn(UntiedFixtures()),
                         [](const auto& info) { return tests::TestName(info.param); });

class NotFiniteLlama : public ::testing::Test {
 protected:
  const BrokenToken model_{tests::TestData() + "/models/llama2", kBroken};
  const EngineOptions options_ = OptionsFor(model_.folder());
};

TEST_F(NotFiniteLlama, TheErrorNamesTheCauseAndWhatToDo) {
  EXPECT_EQ(EndsOf(*Start(options_), {BrokenRequest()})[kFails].error, kError);
  EngineOptions half = options_;
  half.dtype = "float16";
  EXPECT_EQ(EndsOf(*Start(half), {BrokenRequest()})[kFails].error,
            "the logits are not finite: weights of the model are NaN or infinite, or values were "
            "too large for float16; check the checkpoint's files, or try --dtype float32");
}

TEST_F(NotFiniteLlama, OnlyOneRequestFailsHoweverTheModelIsComputed) {
  const std::pair<const char*, std::function<void(EngineOptions&)>> setups[] = {
      {"bfloat16", [](EngineOptions& o) { o.dtype = "bfloat16"; }},
      {"float16", [](EngineOptions& o) { o.dtype = "float16"; }},
      {"int8 cache", [](EngineOptions& o) { o.kv_cache_dtype = "int8"; }},
      {"fp8 cache", [](EngineOptions& o) { o.kv_cache_dtype = "fp8_e4m3"; }},
      {"int8 head", [](EngineOptions& o) { o.head_dtype = "int8"; }},
      {"chunks of 4", [](EngineOptions& o) { o.max_num_batched_tokens = 4; }},
      {"two ranks", [](EngineOptions& o) { o.tensor_parallel = 2; }},
      {"two stages", [](EngineOptions& o) { o.pipeline_parallel = 2; }}};
  for (const auto& [name, change] : setups) {
    SCOPED_TRACE(name);
    EngineOptions options = options_;
    change(options);
    ExpectOnlyOneFails(*Start(options), BrokenRequest());
  }
}

TEST_F(NotFiniteLlama, HowTokensAreChosenMakesNoDifference) {
  const auto engine = Start(options_);
  const std::function<void(SamplingParams&)> changes[] = {
      [](SamplingParams& p) { p.temperature = 1; },
      [](SamplingParams& p) { p.temperature = 1, p.top_k = 5, p.top_p = 0.9; },
      [](SamplingParams& p) { p.logprobs = 3; },
      [](SamplingParams& p) { p.min_tokens = 3; },
      [](SamplingParams& p) { p.repetition_penalty = 1.2; },
      [](SamplingParams& p) {
        p.allowed_token_ids = {4, 5};
      }};
  for (const auto& change : changes) {
    Request request = BrokenRequest();
    change(request.params);
    const RequestEnd answer = EndsOf(*engine, {request})[kFails];
    EXPECT_EQ(answer.error, kError);
    EXPECT_THAT(answer.ids, IsEmpty());
    engine->DropPrefixCache();
  }
}

// Its own output leads a request to the broken token: what came before was sound.
TEST_F(NotFiniteLlama, ARequestKeepsTheTokensBeforeItsError) {
  const auto engine = Start(options_);
  Request request = SoundRequests()[0];
  request.id = kFails;
  request.params.logit_bias = {};
  request.params.allowed_token_ids = {kBroken};
  const RequestEnd answer = EndsOf(*engine, {request})[kFails];
  EXPECT_EQ(answer.ids, std::vector<int32_t>{kBroken});
  EXPECT_EQ(answer.finish, FinishReason::kAborted);
  EXPECT_EQ(answer.error, kError);
}

// The cached blocks of its prompt give the next one that begins alike the same answer.
TEST_F(NotFiniteLlama, APrefixFromTheCacheFailsAsComputed) {
  const auto engine = Start(options_);
  Request request = BrokenRequest();
  request.prompt_ids.resize(100, 20);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(EndsOf(*engine, {request})[kFails].error, kError) << i;
  EXPECT_GT(engine->stats().kv.prefix_hit_tokens, 0u);
}

// Its prompt's log-probabilities are wanted, so that the error is known long before the prompt is
// computed, or the next part of it is in flight.
TEST_F(NotFiniteLlama, ARatedPromptFailsAtItsFirstBrokenRow) {
  for (const int stages : {1, 2}) {
    for (const bool prompt_only : {false, true}) {
      EngineOptions options = options_;
      options.max_num_batched_tokens = 16;
      options.pipeline_parallel = stages;
      const auto engine = Start(options);
      Request request = BrokenRequest();
      request.score = prompt_only;
      request.params.prompt_logprobs = 1;
      request.prompt_ids.resize(100, 20);
      request.prompt_ids[6] = 14;
      request.prompt_ids[40] = kBroken;
      std::vector<Request> requests = SoundRequests();
      requests.push_back(request);
      auto answers = EndsOf(*engine, requests);
      EXPECT_EQ(answers[kFails].error, kError) << stages << " " << prompt_only;
      EXPECT_EQ(answers[kFails].finish, FinishReason::kAborted);
      EXPECT_LE(answers[kFails].rated, 40u) << "the rows before the broken one";
      answers.erase(kFails);
      EXPECT_EQ(answers.size(), 3u);
      for (const auto& [id, answer] : answers) EXPECT_EQ(answer.finish, FinishReason::kLength);
    }
  }
}

TEST_F(NotFiniteLlama, GenerateGivesTheErrorOfThatPromptAlone) {
  const auto engine = Start(options_);
  std::vector<Prompt> prompts(2);
  prompts[0] = {BrokenRequest().prompt_ids, Json::MakeObject(), {}};
  prompts[1] = {{5, 6, 7}, Json::MakeObject(), {}};
  const auto results = Generate(*engine, nullptr, prompts, {.max_tokens = 3, .ignore_eos = true});
  ASSERT_FALSE(results[0].error);
  EXPECT_EQ(ToJson(prompts[0], results[0]).Dump(),
            Json(Json::Object{{"error", std::string(kError)}}).Dump());
  ASSERT_TRUE(results[1].error);
  EXPECT_EQ(results[1].output_ids.size(), 3u);
}

TEST_F(NotFiniteLlama, ScoreGivesTheErrorOfThatPromptAlone) {
  const auto engine = Start(options_);
  std::vector<Prompt> prompts(3);
  prompts[0] = {BrokenRequest().prompt_ids, Json::MakeObject(), {}};
  prompts[1] = {{5, 6, 7}, Json::MakeObject(), {}};
  prompts[2] = {{5, 6, kBroken}, Json::MakeObject(), {}};  // whose last row is nobody's reason
  const std::string logits = ::testing::TempDir() + "/pinion_not_finite_test.safetensors";
  const auto scores = Score(*engine, prompts, {.logits_path = logits}).value();
  EXPECT_EQ(scores.lines[0].Find("error")->string(), kError);
  EXPECT_EQ(scores.lines[1].Find("error"), nullptr);
  EXPECT_EQ(scores.lines[2].Find("error")->string(), kError);

  // As a reference, these logits compare with nothing; and neither do the model's own.
  const auto original = Start(OptionsFor(tests::TestData() + "/models/llama2"));
  const auto compared = Score(*original, prompts, {.compare_path = logits}).value();
  for (const size_t i : {0, 2})
    EXPECT_THAT(compared.lines[i].Find("error")->string(),
                HasSubstr("the reference's logits are not finite; write them again"));
  EXPECT_EQ(compared.whole->Find("positions")->integer(), 3) << "of the sound prompt";
  EXPECT_LT(compared.whole->Find("kl_nats")->number(), 1e-9);
  std::filesystem::remove(logits);
}

TEST(NotFinitePooling, OnlyTheTextThatMeetsItFails) {
  for (const std::string name :
       {"bert-mean", "bert-cls", "bert-reranker", "modernbert", "xlmr", "qwen3-embedding"}) {
    SCOPED_TRACE(name);
    const BrokenToken model(PoolingFolder(name), kBroken);
    EngineOptions options = PoolingOptions(name);
    options.model = model.folder();
    const auto engine = Start(options);
    std::vector<Request> requests(3);
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].id = i;
      requests[i].prompt_ids = {5, 6, 7, 8 + static_cast<int32_t>(i)};
      requests[i].pool = true;
    }
    const auto alone = EndsOf(*engine, requests);
    requests[1].prompt_ids[2] = kBroken;
    auto together = EndsOf(*engine, requests);
    EXPECT_EQ(together[0], alone.at(0));
    EXPECT_EQ(together[2], alone.at(2));
    EXPECT_THAT(together[1].pooled, IsEmpty());
    EXPECT_EQ(together[1].finish, FinishReason::kAborted);
    EXPECT_THAT(together[1].error,
                StartsWith(name == "bert-reranker" ? "the text's scores are not finite: "
                                                   : "the embedding is not finite: "));
  }
}

}  // namespace
}  // namespace pinion
