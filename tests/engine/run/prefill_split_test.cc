// Engines that share work: one computes prompts, the other goes on behind them. What is said must
// not depend on who computed what, nor on either of them being lost.

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "engine/base/check.h"
#include "engine/base/strings.h"
#include "engine/run/engine.h"
#include "engine/run/prefill_role.h"
#include "engine/run/start.h"
#include "engine/transfer/prefill_client.h"
#include "engine/transfer/prefill_server.h"
#include "tests/engine/run/started_engine.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

using Role = PrefillOptions::Role;

constexpr int kSplitBlock = 16;

std::string SocketPath(const char* name) {
  return StrCat("unix:", ::testing::TempDir(), "pinion-", getpid(), "-", name);
}

EngineOptions SplitOptions(const std::string& model) {
  setenv("OMP_NUM_THREADS", "1", 1);  // what nobind goes by
  EngineOptions options;
  options.model =
      model.find(':') == model.npos ? StrCat(tests::TestData(), "/models/", model) : model;
  options.dtype = "float32";
  options.threads_bind = "nobind";
  options.block_size = kSplitBlock;
  options.max_model_len = 160;
  options.max_num_seqs = 6;
  options.max_num_batched_tokens = 64;
  options.kv_cache_bytes = 8 << 20;
  if (const char* isa = std::getenv("PINION_TEST_ISA")) options.isa = isa;
  return options;
}

EngineOptions WithRole(EngineOptions options, Role role, const std::string& address) {
  options.prefill.role = role;
  if (role == Role::kPrefill) options.prefill.listen = address;
  if (role == Role::kDecode) options.prefill.from = {address};
  return options;
}

// An engine on a thread of its own, which steps whenever it has something to do.
class Neighbour {
 public:
  explicit Neighbour(const EngineOptions& options) {
    thread_ = std::thread([this, options] {
      auto engine = Engine::Start(options);
      CHECK(engine) << engine.error().message;
      ready_ = true;
      std::vector<TokenEvent> events;
      while (!ending_) {
        if ((*engine)->wait_ms() != 0) {
          pollfd wait{(*engine)->wake_fd(), POLLIN, 0};
          poll(&wait, 1, 5);
        }
        if (stopped_) continue;
        (*engine)->Step(events);
        EXPECT_TRUE(events.empty()) << "an order is nobody's request";
        stats_orders_ = (*engine)->stats().transfer.orders;
      }
      stats_ = (*engine)->stats();
    });
    while (!ready_) std::this_thread::yield();
  }
  ~Neighbour() { End(); }

  EngineStats End() {
    ending_ = true;
    if (thread_.joinable()) thread_.join();
    return stats_;
  }
  void Stop(bool stopped) { stopped_ = stopped; }
  uint64_t orders() const { return stats_orders_; }

 private:
  std::atomic<bool> ready_ = false, ending_ = false, stopped_ = false;
  std::atomic<uint64_t> stats_orders_ = 0;
  EngineStats stats_;
  std::thread thread_;
};

bool IsUp(const Engine& engine) {
  return engine.ServerInfo()
      .Find("prefill")
      ->Find("prompts_from")
      ->array()[0]
      .Find("up")
      ->boolean();
}

// An engine that has others compute its prompts, once it has found them.
std::unique_ptr<Engine> StartDecoding(const EngineOptions& options) {
  auto engine = Start(options);
  while (!IsUp(*engine)) std::this_thread::yield();
  return engine;
}

std::vector<Request> Prompts(size_t count, size_t vocabulary = 400) {
  std::mt19937 rng(20261126);
  std::vector<int32_t> common(37);
  for (int32_t& token : common) token = static_cast<int32_t>(3 + rng() % vocabulary);
  std::vector<Request> requests;
  for (uint64_t id = 0; id < count; ++id) {
    Request request;
    request.id = id;
    if (id % 3 == 0) request.prompt_ids = common;
    for (size_t i = 0; i < 2 + (id * 13) % 90; ++i)
      request.prompt_ids.push_back(static_cast<int32_t>(3 + rng() % vocabulary));
    request.params.max_tokens = 20;
    request.params.ignore_eos = true;
    requests.push_back(std::move(request));
  }
  return requests;
}

// Returns how many tokens came in a step behind another one of their request.
size_t StepAll(Engine& engine, Outputs& outputs) {
  std::vector<TokenEvent> events;
  size_t behind = 0;
  while (!engine.idle()) {
    if (const int ms = engine.wait_ms(); ms != 0) {
      pollfd wait{engine.wake_fd(), POLLIN, 0};
      poll(&wait, 1, ms < 0 ? 1000 : ms);
    }
    events.clear();
    engine.Step(events);
    std::set<uint64_t> requests;
    for (const TokenEvent& event : events) {
      if (!event.has_token) continue;
      outputs[event.request].push_back(event.token.id);
      if (!requests.insert(event.request).second) ++behind;
    }
  }
  return behind;
}

Outputs AnswersOf(Engine& engine, const std::vector<Request>& requests) {
  for (const Request& request : requests) {
    const Status added = engine.Add(request);
    CHECK(added) << added.error().message;
  }
  Outputs outputs;
  StepAll(engine, outputs);
  EXPECT_EQ(engine.stats().blocks_used, 0u);
  return outputs;
}

Outputs AloneAnswers(const EngineOptions& options, const std::vector<Request>& requests) {
  const auto engine = Start(options);
  Outputs outputs;
  for (const Request& request : requests) outputs.merge(AnswersOf(*engine, {request}));
  return outputs;
}

// Whole attention, windows, chunks, latents, an indexer, pages, and states of every kind.
class SplitKinds : public ::testing::TestWithParam<const char*> {};

TEST_P(SplitKinds, WhatIsSaidDoesNotDependOnWhoComputedThePrompt) {
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
  const auto binary = std::filesystem::read_symlink("/proc/self/exe").replace_filename("pinion");
  setenv("PINION_BINARY", binary.c_str(), 0);
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

TEST(PrefillSplit, WhatBothEnginesHaveCachedIsSaidToBeCached) {
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

TEST(PrefillSplit, AnEngineThatIsLostIsDoneWithoutAndTakenBack) {
  const EngineOptions options = SplitOptions("preset:tiny");
  const std::vector<Request> requests = Prompts(20);
  const Outputs alone = AloneAnswers(options, requests);
  const std::string address = SocketPath("lost");
  auto other = std::make_unique<Neighbour>(WithRole(options, Role::kPrefill, address));
  const auto engine = StartDecoding(WithRole(options, Role::kDecode, address));
  other->Stop(true);  // with orders that it does not look at
  for (const Request& request : requests) ASSERT_TRUE(engine->Add(request));
  other.reset();
  Outputs outputs;
  StepAll(*engine, outputs);
  EXPECT_EQ(outputs, alone);
  EXPECT_GT(engine->stats().transfer.failed, 0u);
  EXPECT_FALSE(IsUp(*engine));
  engine->DropPrefixCache();
  const uint64_t ordered = engine->stats().transfer.orders;
  EXPECT_EQ(AnswersOf(*engine, requests), alone) << "all by itself";
  EXPECT_EQ(engine->stats().transfer.orders, ordered);

  other = std::make_unique<Neighbour>(WithRole(options, Role::kPrefill, address));
  while (!IsUp(*engine)) std::this_thread::yield();
  engine->DropPrefixCache();
  EXPECT_EQ(AnswersOf(*engine, requests), alone);
  EXPECT_GT(engine->stats().transfer.orders, ordered);
}

TEST(PrefillSplit, AnAbortedPromptIsWantedNoMore) {
  const EngineOptions options = SplitOptions("preset:tiny");
  const std::string address = SocketPath("abort");
  Neighbour other(WithRole(options, Role::kPrefill, address));
  const auto engine = StartDecoding(WithRole(options, Role::kDecode, address));
  other.Stop(true);
  std::vector<Request> requests = Prompts(8);
  for (const Request& request : requests) ASSERT_TRUE(engine->Add(request));
  for (const Request& request : requests) engine->Abort(request.id);
  std::vector<TokenEvent> events;
  engine->Step(events);
  EXPECT_EQ(events.size(), requests.size());
  for (const TokenEvent& event : events) EXPECT_EQ(event.finish, FinishReason::kAborted);
  EXPECT_TRUE(engine->idle());
  other.Stop(false);
  // The orders of those that were aborted leave nothing behind.
  EXPECT_EQ(AnswersOf(*engine, requests), AloneAnswers(options, requests));
  EXPECT_EQ(other.End().blocks_used, 0u);
}

TEST(PrefillSplit, EnginesOfDifferentModelsShareNothing) {
  const EngineOptions options = SplitOptions("preset:tiny");
  const std::string address = SocketPath("differ");
  EngineOptions prefill = WithRole(options, Role::kPrefill, address);
  prefill.seed = 1;  // other weights
  Neighbour other(prefill);
  const auto engine = Start(WithRole(options, Role::kDecode, address));
  std::string reason;
  while (reason.find("differ") == reason.npos)
    reason = engine->ServerInfo()
                 .Find("prefill")
                 ->Find("prompts_from")
                 ->array()[0]
                 .Find("reason")
                 ->string();
  EXPECT_NE(reason.find("the model is"), reason.npos) << reason;
  const std::vector<Request> requests = Prompts(8);
  EXPECT_EQ(AnswersOf(*engine, requests), AloneAnswers(options, requests));
  EXPECT_EQ(other.End().transfer.orders, 0u);
}

// Engine and network of someone who was let in and means no good.
std::unique_ptr<PrefillClient> ClientOf(const EngineOptions& options, const std::string& address) {
  auto model = StartModel(WithRole(options, Role::kDecode, address));
  CHECK(model) << model.error().message;
  PrefillClient::Options client;
  client.from = {*ParseAddress(address, "")};
  client.facts = FactsOfTransfer(*model);
  auto started = PrefillClient::Start(std::move(client));
  while (!started->any_up()) std::this_thread::yield();
  return started;
}

PrefillClient::Event AwaitEvent(PrefillClient& client) {
  for (;;) {
    if (auto event = client.Next()) return *std::move(event);
    std::this_thread::yield();
  }
}

TEST(PrefillSplit, OrdersThatCannotBeComputedAreAnsweredWithTheReason) {
  const EngineOptions options = SplitOptions("preset:tiny");
  const std::string address = SocketPath("orders");
  Neighbour other(WithRole(options, Role::kPrefill, address));
  const auto client = ClientOf(options, address);
  const std::pair<std::vector<int32_t>, const char*> cases[] = {
      {{}, "empty"},
      {{1, -1, 2}, "token -1 is outside the vocabulary"},
      {{1, 1 << 20}, "token 1048576 is outside the vocabulary"},
      {std::vector<int32_t>(160, 1), "the prompt has 160 tokens"}};
  uint64_t id = 0;
  for (const auto& [tokens, said] : cases) {
    OrderMessage order;
    order.id = ++id;
    order.tokens = tokens;
    ASSERT_TRUE(client->Order(order));
    const auto done = std::get<DoneMessage>(AwaitEvent(*client));
    EXPECT_NE(done.error.find(said), std::string::npos) << done.error;
  }
  // Nothing is wanted of a prompt that the other engine has, or that has no full block.
  for (const auto& [first, tokens] : {std::pair{1000u, 40}, {0u, 5}}) {
    OrderMessage order;
    order.id = ++id;
    order.first_block = first;
    order.tokens.assign(static_cast<size_t>(tokens), 7);
    ASSERT_TRUE(client->Order(order));
    EXPECT_EQ(std::get<DoneMessage>(AwaitEvent(*client)).error, "");
  }
  EXPECT_EQ(other.End().blocks_used, 0u);
}

TEST(PrefillSplit, BlocksThatAreNoneOfThePromptsAreNotTaken) {
  const EngineOptions options = SplitOptions("preset:tiny");
  const Request request = Prompts(8)[6];
  const Outputs alone = AloneAnswers(options, {request});
  const size_t bytes = size_t{kSplitBlock} * 2 * 2 * 16 * 2 * 4;  // of a block
  const std::string whole(bytes, 'x');
  const BlocksMessage good{0, 0, 0, whole}, cases[] = {{0, 1, 0, whole},
                                                       {0, 0, 7, whole},
                                                       {0, 0, 0xffffffff, whole},
                                                       {0, 0, 6, whole + whole},
                                                       {0, 0, 0, whole + "x"},
                                                       {0, 0, 0, "x"},
                                                       {0, 0, 0, std::string(8 * bytes, 'x')}};
  for (BlocksMessage blocks : cases) {
    const std::string address = SocketPath("blocks");
    PrefillServer::Options served;
    served.listen = *ParseAddress(address, "");
    served.most_tokens = 1000;  // no facts: everybody may order
    const auto server = PrefillServer::Start(std::move(served)).value();
    const auto engine = StartDecoding(WithRole(options, Role::kDecode, address));
    ASSERT_TRUE(engine->Add(request));
    std::optional<PrefillServer::Arrived> arrived;
    while (!(arrived = server->Next())) std::this_thread::yield();
    const uint64_t id = arrived->order->id;
    blocks.id = id;
    BlocksMessage first = good;
    first.id = id;
    server->Send(arrived->from, first);
    server->Send(arrived->from, blocks);
    server->Send(arrived->from, StateMessage{id, "no model has states of this size"});
    server->Send(arrived->from, DoneMessage{id, "", 1000});
    Outputs outputs;
    StepAll(*engine, outputs);
    EXPECT_EQ(outputs.at(request.id).size(), alone.at(request.id).size())
        << blocks.table << ' ' << blocks.first << ' ' << blocks.images.size();
    EXPECT_EQ(engine->stats().transfer.failed, 1u);
    EXPECT_EQ(engine->stats().transfer.taken_tokens, size_t{kSplitBlock}) << "the first block";
  }
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

TEST(PrefillSplit, WantsThePrefixCache) {
  EngineOptions options = WithRole(SplitOptions("preset:tiny"), Role::kPrefill, SocketPath("none"));
  options.prefix_caching = false;
  const auto engine = Engine::Start(options);
  ASSERT_FALSE(engine);
  EXPECT_NE(engine.error().message.find("--no-enable-prefix-caching"), std::string::npos);
}

}  // namespace
}  // namespace pinion
