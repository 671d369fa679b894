#pragma once

// An engine whose sequences have grammars, followed by the real helper.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/run/engine.h"
#include "tests/engine/run/test_target.h"
#include "tests/test_data.h"

namespace pinion {

inline constexpr uint64_t kFree = 1, kBound = 2;

struct Answer {
  std::vector<int32_t> ids;
  std::string error;
  FinishReason finish = FinishReason::kNone;
};

class ConstrainedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("OMP_NUM_THREADS", "1", 1);
    EngineOptions options;
    testing::SetTestTarget(options);
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

}  // namespace pinion
