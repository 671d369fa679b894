// Answers must not depend on the division of work between engines.

#include <gtest/gtest.h>
#include <poll.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/run/engine.h"
#include "engine/transfer/prefill_server.h"
#include "tests/engine/run/split_engines.h"

namespace pinion {
namespace {

// Whole attention, windows, chunks, latents, an indexer, pages, and states of every kind.
class SplitKinds : public ::testing::TestWithParam<const char*> {};

TEST_P(SplitKinds, TheAnswerDoesNotDependOnTheEngineThatComputedThePrompt) {
  EngineOptions options = SplitOptions(GetParam());
  options.max_num_seqs = 16;  // room for all at once: none is computed here for lack of it
  const std::vector<Request> requests = Prompts(14);
  const Outputs alone = AloneAnswers(options, requests);
  const std::string address = SocketPath("kinds");
  Neighbour other(WithRole(options, Role::kPrefill, address));
  const auto engine = StartDecoding(WithRole(options, Role::kDecode, address));
  EXPECT_EQ(AnswersOf(*engine, requests), alone);
  const EngineStats here = engine->stats(), there = other.End();
  EXPECT_GT(here.transfer.orders, 5u);
  EXPECT_EQ(here.transfer.orders, there.transfer.orders);
  EXPECT_EQ(here.transfer.failed + there.transfer.failed, 0u);
  EXPECT_GT(here.transfer.taken_tokens, 0u);
  EXPECT_EQ(here.transfer.taken_tokens, there.transfer.given_tokens);
  EXPECT_EQ(here.transfer.bytes, there.transfer.bytes);
  size_t whole = 0;
  for (const Request& request : requests) whole += request.prompt_ids.size();
  EXPECT_LE(here.prompt_tokens + here.transfer.taken_tokens, whole) << "nothing is computed twice";
}

INSTANTIATE_TEST_SUITE_P(Models, SplitKinds,
                         ::testing::Values("llama", "gemma3", "gemma4-e", "gemma4-moe", "gptoss",
                                           "llama4", "deepseekv3", "deepseekv3.2", "qwen3.5-text",
                                           "granite4", "kimi-linear", "lfm2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name)
                             if (c == '.' || c == '-') c = '_';
                           return name;
                         });

// Forced tokens jump over positions that follow a prompt computed elsewhere.
TEST(Split, ForcedTokensJumpBehindThePromptsOfAnotherEngine) {
  for (const char* model : {"llama", "qwen3.5-text", "gemma3"}) {
    EngineOptions options = SplitOptions(model);
    options.max_num_seqs = 16;
    std::vector<Request> requests = Prompts(6);
    for (Request& request : requests) {
      request.params.max_tokens = 60;
      request.params.ignore_eos = false;
      request.params.temperature = 2;
      request.params.seed = request.id;
      request.grammar = std::make_shared<Grammar>(
          Grammar{"regex", "[0-9]{3}-abcdefghij-[a-c]{1,4} the end of it"});
    }
    const auto alone = Start(options);
    if (auto can = CanFollowGrammars(GrammarVocabularyOf(alone->model())); !can)
      GTEST_SKIP() << can.error().message;
    for (Request& request : requests) request.params.logprobs = 0;
    const Outputs one_by_one = AnswersOf(*alone, requests);
    for (Request& request : requests) request.params.logprobs = -1;
    const std::string address = SocketPath("jumps");
    Neighbour other(WithRole(options, Role::kPrefill, address));
    const auto engine = StartDecoding(WithRole(options, Role::kDecode, address));
    for (const Request& request : requests) ASSERT_TRUE(engine->Add(request));
    Outputs jumped;
    // Each answer has two literals of several tokens.
    EXPECT_GT(StepAll(*engine, jumped), 2 * requests.size()) << model;
    EXPECT_EQ(jumped, one_by_one) << model;
    EXPECT_GT(engine->stats().transfer.taken_tokens, 0u) << model;
  }
}

struct SplitShape {
  const char* name;
  int tensor, pipeline, prefill_step, decode_step;
  uint64_t prefill_kv, decode_kv;
  const char* kv_dtype;
};
void PrintTo(const SplitShape& shape, std::ostream* out) { *out << shape.name; }

class SplitShapes : public ::testing::TestWithParam<SplitShape> {};

TEST_P(SplitShapes, GiveTheSameAnswers) {
  const SplitShape& shape = GetParam();
  EngineOptions options = SplitOptions("preset:tiny");
  options.tensor_parallel = shape.tensor;
  options.pipeline_parallel = shape.pipeline;
  options.kv_cache_dtype = shape.kv_dtype;
  const std::vector<Request> requests = Prompts(24);
  const Outputs alone = AloneAnswers(options, requests);
  const std::string address = SocketPath("shapes");
  EngineOptions prefill = WithRole(options, Role::kPrefill, address);
  prefill.max_num_batched_tokens = shape.prefill_step;
  prefill.kv_cache_bytes = shape.prefill_kv;
  Neighbour other(prefill);
  EngineOptions decode = WithRole(options, Role::kDecode, address);
  decode.max_num_batched_tokens = shape.decode_step;
  decode.kv_cache_bytes = shape.decode_kv;
  const auto engine = StartDecoding(decode);
  EXPECT_EQ(AnswersOf(*engine, requests), alone);
  EXPECT_GT(engine->stats().transfer.taken_tokens, 0u);
}

// preset:tiny has 8 KiB a block with float32, so 100 KiB are 12 blocks: the longest sequence
// takes 10.
INSTANTIATE_TEST_SUITE_P(
    Engine, SplitShapes,
    ::testing::Values(SplitShape{"TwoRanks", 2, 1, 64, 64, 1 << 20, 1 << 20, "auto"},
                      SplitShape{"TwoStages", 1, 2, 64, 64, 1 << 20, 1 << 20, "auto"},
                      SplitShape{"OneTokenSteps", 1, 1, 1, 1, 8 << 20, 8 << 20, "auto"},
                      SplitShape{"OtherSteps", 1, 1, 7, 23, 8 << 20, 3 << 20, "auto"},
                      SplitShape{"Int8Keys", 1, 1, 64, 64, 8 << 20, 8 << 20, "int8"},
                      SplitShape{"FewBlocksThere", 1, 1, 64, 64, 100 << 10, 8 << 20, "auto"},
                      SplitShape{"FewBlocksHere", 1, 1, 64, 64, 8 << 20, 100 << 10, "auto"},
                      SplitShape{"FewBlocks", 1, 1, 16, 16, 100 << 10, 100 << 10, "auto"}),
    [](const auto& info) { return info.param.name; });

TEST(PrefillSplit, APromptThatSeveralHaveIsOrderedOnce) {
  const EngineOptions options = SplitOptions("preset:tiny");
  std::vector<Request> requests = Prompts(8);
  for (Request& request : requests) {
    request.prompt_ids = requests[6].prompt_ids;
    request.group = 1;
  }
  const Outputs alone = AloneAnswers(options, requests);
  const std::string address = SocketPath("once");
  Neighbour other(WithRole(options, Role::kPrefill, address));
  const auto engine = StartDecoding(WithRole(options, Role::kDecode, address));
  EXPECT_EQ(AnswersOf(*engine, requests), alone);
  EXPECT_EQ(engine->stats().transfer.orders, 1u);
}

TEST(PrefillSplit, TokensCachedInBothEnginesAreReportedAsCached) {
  const EngineOptions options = SplitOptions("preset:tiny");
  const std::string address = SocketPath("cached");
  Neighbour other(WithRole(options, Role::kPrefill, address));
  const auto engine = StartDecoding(WithRole(options, Role::kDecode, address));
  Request request = Prompts(8)[6];
  ASSERT_GT(request.prompt_ids.size(), 5u * kSplitBlock);
  const size_t all = (request.prompt_ids.size() - 1) / kSplitBlock * kSplitBlock;
  const auto cached = [&](uint64_t id) {
    request.id = id;
    EXPECT_TRUE(engine->Add(request));
    std::vector<TokenEvent> events, all_events;
    while (!engine->idle()) {
      engine->Step(events);
      all_events.insert(all_events.end(), events.begin(), events.end());
      events.clear();
    }
    return all_events.back().cached_tokens;
  };
  EXPECT_EQ(cached(1), 0u) << "the other engine has just computed it";
  EXPECT_EQ(cached(2), all);
  engine->DropPrefixCache();
  EXPECT_EQ(cached(3), all) << "the other engine had it";
  EXPECT_EQ(engine->stats().transfer.orders, 2u);
}

// Each waits for the place of the one before it; nothing else wakes the engine.
TEST(PrefillSplit, APromptIsOrderedAsSoonAsThereIsRoom) {
  EngineOptions options = SplitOptions("preset:tiny");
  options.max_num_seqs = 1;
  const std::vector<Request> requests = Prompts(24);
  const Outputs alone = AloneAnswers(options, requests);
  const std::string address = SocketPath("room");
  Neighbour other(WithRole(options, Role::kPrefill, address));
  const auto engine = StartDecoding(WithRole(options, Role::kDecode, address));
  for (const Request& request : requests) ASSERT_TRUE(engine->Add(request));
  Outputs outputs;
  size_t in_vain = 0;
  std::vector<TokenEvent> events;
  while (!engine->idle()) {
    if (engine->wait_ms() != 0) {
      pollfd wait{engine->wake_fd(), POLLIN, 0};
      in_vain += poll(&wait, 1, 10'000) == 0 ? 1 : 0;
    }
    events.clear();
    engine->Step(events);
    for (const TokenEvent& event : events)
      if (event.has_token) outputs[event.request].push_back(event.token.id);
  }
  EXPECT_EQ(outputs, alone);
  EXPECT_EQ(in_vain, 0u);
}

// The other engine has an order, and says nothing.
TEST(PrefillSplit, APromptWithoutRoomIsComputedHereOnceItsPatienceIsOver) {
  EngineOptions options = SplitOptions("preset:tiny");
  options.max_num_seqs = 1;
  std::vector<Request> requests = {Prompts(8)[6], Prompts(8)[5]};
  const Outputs alone = AloneAnswers(options, requests);
  const std::string address = SocketPath("patience");
  PrefillServer::Options served;
  served.listen = *ParseAddress(address, "");
  served.most_tokens = 1000;  // no facts: everybody may order
  auto server = PrefillServer::Start(std::move(served)).value();
  const auto engine = StartDecoding(WithRole(options, Role::kDecode, address));
  for (const Request& request : requests) ASSERT_TRUE(engine->Add(request));
  EXPECT_EQ(engine->stats().transfer.orders, 1u);
  Outputs outputs;
  std::vector<TokenEvent> events;
  while (outputs[requests[1].id].size() < alone.at(requests[1].id).size()) {
    const int ms = engine->wait_ms();
    ASSERT_GE(ms, 0) << "nothing else would wake the engine";
    pollfd wait{engine->wake_fd(), POLLIN, 0};
    poll(&wait, 1, ms);
    events.clear();
    engine->Step(events);
    for (const TokenEvent& event : events)
      if (event.has_token) outputs[event.request].push_back(event.token.id);
  }
  EXPECT_EQ(engine->stats().transfer.orders, 1u);
  EXPECT_EQ(engine->wait_ms(), -1) << "only an answer is waited for";
  server.reset();
  StepAll(*engine, outputs);
  EXPECT_EQ(outputs, alone);
}

TEST(PrefillSplit, WantsThePrefixCache) {
  EngineOptions options = WithRole(SplitOptions("preset:tiny"), Role::kPrefill, SocketPath("none"));
  options.prefix_caching = false;
  const auto engine = Engine::Start(options);
  ASSERT_FALSE(engine);
  EXPECT_NE(engine.error().message.find("--no-enable-prefix-caching"), std::string::npos);
}

}  // namespace
}  // namespace pinion
