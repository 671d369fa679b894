#include "engine/run/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "engine/base/check.h"
#include "engine/base/file.h"
#include "engine/checkpoint/model.h"
#include "engine/run/score.h"
#include "tests/engine/run/test_target.h"

namespace pinion {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kTinyLength = 64;

std::unique_ptr<Engine> StartTiny() {
  setenv("OMP_NUM_THREADS", "1", 1);
  EngineOptions options;
  options.model = "preset:tiny";
  options.threads_bind = "nobind";
  options.max_model_len = kTinyLength;
  options.kv_cache_bytes = 1 << 20;
  testing::SetTestTarget(options);
  auto engine = Engine::Start(options);
  CHECK(engine) << engine.error().message;
  return *std::move(engine);
}

Prompt Ids(std::vector<int32_t> ids, const std::string& line = "{}") {
  return {std::move(ids), Json::Parse(line).value(), {}};
}

std::string LogitsPath() { return ::testing::TempDir() + "/pinion_generate_test.safetensors"; }

class Generating : public ::testing::Test {
 protected:
  PromptResult One(const std::string& line) {
    auto all = Generate(*engine_, tokenizer_.get(), {Ids({5, 6, 7}, line)}, {});
    EXPECT_TRUE(all[0].error) << all[0].error.error().message;
    return std::move(all[0]);
  }

  std::unique_ptr<Engine> engine_ = StartTiny();
  std::unique_ptr<Tokenizer> tokenizer_ = *OpenTokenizer(engine_->model());
};

TEST_F(Generating, LeavesOutTheTextOfTheTokenThatStops) {
  const PromptResult free = One(R"({"max_tokens": 6, "ignore_eos": true})");
  ASSERT_EQ(free.output_ids.size(), 6u);
  const std::string stop_line = R"({"max_tokens": 6, "ignore_eos": true, "stop_token_ids": [)" +
                                std::to_string(free.output_ids[3]) + "]";
  const PromptResult stopped = One(stop_line + "}");
  const PromptResult shown = One(stop_line + R"(, "include_stop_str_in_output": true})");
  EXPECT_EQ(stopped.finish, FinishReason::kStop);
  EXPECT_EQ(stopped.output_ids, shown.output_ids);
  EXPECT_EQ(stopped.output_ids.back(), free.output_ids[3]) << "the id is there";
  EXPECT_LT(stopped.text.size(), shown.text.size());
  EXPECT_THAT(shown.text, StartsWith(stopped.text));
}

TEST_F(Generating, GivesOnlyTheChosenTokensLogprobForLogprobsZero) {
  const PromptResult none = One(R"({"max_tokens": 2})");
  EXPECT_THAT(none.tokens, IsEmpty());
  EXPECT_THAT(ToJson(Ids({5}), none).Dump(), Not(HasSubstr("logprob")));
  const PromptResult chosen = One(R"({"max_tokens": 2, "logprobs": 0})");
  ASSERT_EQ(chosen.tokens.size(), chosen.output_ids.size());
  EXPECT_LT(chosen.tokens[0].logprob, 0);
  EXPECT_THAT(ToJson(Ids({5}), chosen).Dump(), HasSubstr("\"logprob\""));
}

TEST_F(Generating, ContinuesWithTheOthersIfOneIsRefused) {
  const auto all = Generate(*engine_, tokenizer_.get(),
                            {Ids({5}, R"({"top_p": 7})"), Ids(std::vector<int32_t>(kTinyLength, 5)),
                             Ids({5}, R"({"max_tokens": 3, "ignore_eos": true})")},
                            {});
  ASSERT_EQ(all.size(), 3u);
  EXPECT_THAT(all[0].error.error().message, HasSubstr("top_p is 7"));
  EXPECT_THAT(all[1].error.error().message, HasSubstr("the prompt has 64 tokens"));
  EXPECT_EQ(all[2].output_ids.size(), 3u);
}

TEST_F(Generating, WritesACompleteLogitsFileEvenIfTheLastPromptIsRefused) {
  const std::vector<Prompt> prompts = {Ids({5, 6, 7}),
                                       Ids(std::vector<int32_t>(kTinyLength + 1, 5))};
  const auto scores = Score(*engine_, prompts, {2, LogitsPath(), ""});
  ASSERT_TRUE(scores) << scores.error().message;
  EXPECT_TRUE(scores->lines[0].Find("perplexity"));
  EXPECT_TRUE(scores->lines[1].Find("error"));
  const auto file = OpenSafetensorsFile(LogitsPath());
  ASSERT_TRUE(file) << file.error().message;
  const auto tensor = (*file)->Find("prompt0.logits");
  ASSERT_TRUE(tensor) << tensor.error().message;
  EXPECT_EQ(tensor->shape, (std::vector<int64_t>{3, engine_->model().spec.vocabulary}));
  std::filesystem::remove(LogitsPath());
}

}  // namespace
}  // namespace pinion
