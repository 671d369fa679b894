// The engine loop under pressure: its output must not depend on blocks, chunks, neighbours,
// ranks, stages or the prefix cache.

#include "engine/run/engine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>

#include "engine/base/check.h"
#include "tests/engine/run/started_engine.h"
#include "tests/engine/run/test_target.h"

namespace pinion {
namespace {

constexpr size_t kLength = 128;
// preset:tiny in float32: 2 layers x 2 KV heads x 16 x (K and V) x 4 bytes a token, 16 tokens.
constexpr uint64_t kBlockBytes = 2 * 2 * 16 * 2 * 4 * 16;

// One thread a rank unless told otherwise: on a busy machine two wait for each other a time slice
// at every barrier.
EngineOptions Tiny(uint64_t blocks, int threads = 1) {
  setenv("OMP_NUM_THREADS", std::to_string(threads).c_str(), 1);  // what nobind goes by
  EngineOptions options;
  options.model = "preset:tiny";
  options.dtype = "float32";
  options.threads_bind = "nobind";
  options.block_size = 16;
  options.max_model_len = kLength;
  options.kv_cache_bytes = blocks * kBlockBytes;
  testing::SetTestTarget(options);
  return options;
}

std::vector<int32_t> RandomIds(std::mt19937& rng, size_t count) {
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(2 + rng() % 500);
  return ids;
}

// A dozen requests of all lengths, some with a common beginning, some sampling.
std::vector<Request> Requests() {
  std::mt19937 rng(20261120);
  const std::vector<int32_t> common = RandomIds(rng, 40);
  std::vector<Request> requests;
  for (uint64_t id = 0; id < 12; ++id) {
    Request request;
    request.id = id;
    if (id % 3 == 0) request.prompt_ids = common;
    const std::vector<int32_t> own = RandomIds(rng, 1 + rng() % 40);
    request.prompt_ids.insert(request.prompt_ids.end(), own.begin(), own.end());
    request.params.max_tokens = 20 + static_cast<int>(rng() % 28);
    request.params.ignore_eos = true;
    if (id % 4 == 1) {
      request.params.temperature = 1;
      request.params.top_p = 0.9;
      request.params.seed = id;
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

// Every request alone, in one piece, on one rank, without the prefix cache.
const Outputs& Expected() {
  static const Outputs expected = [] {
    EngineOptions options = Tiny(64);
    options.prefix_caching = false;
    const auto engine = Start(options);
    Outputs outputs;
    for (const Request& request : Requests()) outputs.merge(RunAll(*engine, {request}));
    std::set<int32_t> distinct;
    for (const auto& [id, tokens] : outputs) distinct.insert(tokens.begin(), tokens.end());
    CHECK(distinct.size() > 50) << "a model that says little tells little";
    return outputs;
  }();
  return expected;
}

struct Pressure {
  const char* name;
  uint64_t blocks;
  int chunk, ranks, threads;
  bool caching;
  int step_ms = 0;  // 0: steps have no bound
  int stages = 1;   // which divide the layers, and so the bytes of a block
};
void PrintTo(const Pressure& pressure, std::ostream* out) { *out << pressure.name; }

class EngineUnderPressure : public ::testing::TestWithParam<Pressure> {};

TEST_P(EngineUnderPressure, GivesEveryRequestTheTokensItGetsAlone) {
  const Pressure& pressure = GetParam();
  EngineOptions options = Tiny(pressure.blocks, pressure.threads);
  *options.kv_cache_bytes /= static_cast<uint64_t>(pressure.stages);
  options.max_num_batched_tokens = pressure.chunk;
  options.tensor_parallel = pressure.ranks;
  options.pipeline_parallel = pressure.stages;
  options.prefix_caching = pressure.caching;
  if (pressure.step_ms > 0) options.max_step_ms = pressure.step_ms;
  const auto engine = Start(options);
  EXPECT_EQ(RunAll(*engine, Requests()), Expected());
  // Again, over what the first run left in the cache.
  EXPECT_EQ(RunAll(*engine, Requests()), Expected());
  const EngineStats stats = engine->stats();
  if (pressure.blocks < 50) {
    EXPECT_GT(stats.scheduler.preemptions, 0u);
  }
  if (pressure.caching) {
    EXPECT_GT(stats.kv.prefix_hit_tokens, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, EngineUnderPressure,
    ::testing::Values(Pressure{"Roomy", 100, 2048, 1, 1, true},
                      Pressure{"RoomyTwoRanks", 100, 2048, 2, 1, true},
                      Pressure{"ChunksOfSeven", 100, 7, 1, 1, true},
                      Pressure{"ChunksOfSevenTwoThreads", 100, 7, 1, 2, true},
                      Pressure{"ChunksOfSevenThreeRanks", 100, 7, 3, 1, true},
                      Pressure{"OneTokenAStep", 100, 1, 1, 1, false},
                      Pressure{"TimedSteps", 100, 2048, 1, 1, true, 1},
                      Pressure{"TimedStepsOfTwoRanks", 100, 64, 2, 1, true, 2},
                      Pressure{"FewBlocks", 10, 64, 1, 1, true},
                      Pressure{"FewBlocksWithoutCache", 10, 64, 1, 1, false},
                      Pressure{"FewBlocksTwoRanks", 10, 13, 2, 1, true},
                      Pressure{"ChunksOfSevenTwoStages", 100, 7, 1, 1, true, 0, 2},
                      Pressure{"OneTokenAStepTwoStages", 100, 1, 1, 1, false, 0, 2},
                      Pressure{"TimedStepsOfTwoStages", 100, 64, 1, 1, true, 2, 2},
                      Pressure{"FewBlocksTwoStagesWithoutCache", 10, 64, 1, 1, false, 0, 2},
                      // Steps of 256 rows and more, which are cut into parts.
                      Pressure{"FewBlocksTwoStagesInParts", 40, 2048, 1, 1, true, 0, 2},
                      Pressure{"FewBlocksTwoStagesOfTwoRanks", 10, 13, 2, 1, true, 0, 2}),
    [](const auto& info) { return std::string(info.param.name); });

// The calls of the score sink: positions in order, and the logits of each.
struct HandedScores {
  std::map<uint64_t, std::vector<size_t>> positions;
  std::map<uint64_t, std::vector<float>> logits;  // the first one of every position

  void Collect(Engine& engine) {
    engine.SetScoreSink([this](uint64_t id, size_t position, const float* row, size_t) {
      positions[id].push_back(position);
      logits[id].push_back(row[0]);
    });
  }
};

TEST(EngineScore, HandsOnEveryPositionOnceInOrderDespitePreemption) {
  std::mt19937 rng(7);
  Request score{1, RandomIds(rng, 100), {}, true};
  Request busy{0, RandomIds(rng, 20), {}, false};
  busy.params.max_tokens = 100;
  busy.params.ignore_eos = true;

  const auto roomy = Start(Tiny(64));
  HandedScores alone;
  alone.Collect(*roomy);
  RunAll(*roomy, {score});

  EngineOptions tight = Tiny(10);  // 8 blocks for the one that decodes, 7 for the one that scores
  tight.max_num_batched_tokens = 2;
  const auto engine = Start(tight);
  HandedScores scores;
  scores.Collect(*engine);
  RunAll(*engine, {busy, score});
  ASSERT_GT(engine->stats().scheduler.preemptions, 0u);

  std::vector<size_t> every(100);
  for (size_t i = 0; i < every.size(); ++i) every[i] = i;
  EXPECT_EQ(alone.positions[1], every);
  EXPECT_EQ(scores.positions[1], every);
  ASSERT_EQ(scores.logits[1].size(), 100u);
  for (size_t i = 0; i < 100; ++i)
    EXPECT_NEAR(scores.logits[1][i], alone.logits[1][i], 1e-4) << "position " << i;
}

// The ranks and log-probabilities of a prompt's tokens, and whether a token followed.
struct Rated {
  std::vector<SampledToken> tokens;
  size_t yielded = 0;
  FinishReason finish = FinishReason::kNone;
};

Rated Rate(Engine& engine, const std::vector<Request>& requests) {
  for (const Request& request : requests) CHECK(engine.Add(request));
  Rated rated;
  std::vector<TokenEvent> events;
  while (!engine.idle()) {
    events.clear();
    engine.Step(events);
    for (TokenEvent& event : events) {
      if (event.request != 1) continue;
      for (SampledToken& token : event.rated_prompt) rated.tokens.push_back(std::move(token));
      rated.yielded += event.has_token ? 1 : 0;
      rated.finish = event.finish;
    }
  }
  return rated;
}

// The log-probabilities of a prompt's tokens but the first, from the logits that a sink gets.
std::vector<double> LogprobsOf(const std::vector<int32_t>& ids) {
  std::vector<double> logprobs;
  const auto engine = Start(Tiny(64));
  engine->SetScoreSink([&](uint64_t, size_t position, const float* row, size_t vocabulary) {
    if (position + 1 == ids.size()) return;
    double sum = 0;
    for (size_t i = 0; i < vocabulary; ++i) sum += std::exp(row[i]);
    logprobs.push_back(row[ids[position + 1]] - std::log(sum));
  });
  RunAll(*engine, {{1, ids, {}, true}});
  return logprobs;
}

TEST(EngineScore, RatesThePromptOfARequestOnceDespitePreemptionAndCache) {
  std::mt19937 rng(7);
  Request request{1, RandomIds(rng, 100), {}};
  request.params.prompt_logprobs = 2;
  request.params.max_tokens = 5;
  request.params.ignore_eos = true;
  Request busy{0, RandomIds(rng, 20), {}};
  busy.params.max_tokens = 100;
  busy.params.ignore_eos = true;
  const std::vector<double> expected = LogprobsOf(request.prompt_ids);
  EngineOptions tight = Tiny(10);
  tight.max_num_batched_tokens = 2;
  const auto roomy = Start(Tiny(64)), engine = Start(tight);
  // A second time, after the first has left its prefix in the cache.
  const Rated once = Rate(*roomy, {request}), again = Rate(*roomy, {request}),
              pressed = Rate(*engine, {busy, request});
  ASSERT_GT(engine->stats().scheduler.preemptions, 0u);
  for (const Rated* rated : {&once, &again, &pressed}) {
    ASSERT_EQ(rated->tokens.size(), 99u);
    EXPECT_EQ(rated->yielded, 5u);
    for (size_t i = 0; i < 99; ++i) {
      const SampledToken& token = rated->tokens[i];
      EXPECT_EQ(token.id, request.prompt_ids[i + 1]);
      EXPECT_NEAR(token.logprob, expected[i], 1e-4) << "token " << i + 1;
      ASSERT_EQ(token.top.size(), 2u);
      EXPECT_EQ(token.rank == 1, token.logprob == token.top[0].second);
      EXPECT_EQ(token.rank <= 2, token.logprob >= token.top[1].second);
    }
  }
}

TEST(EngineScore, RatesAPromptThatFillsTheModelAndGeneratesNothing) {
  std::mt19937 rng(7);
  Request request{1, RandomIds(rng, kLength), {}, true};
  request.params.prompt_logprobs = 0;
  const auto engine = Start(Tiny(64));
  const Rated rated = Rate(*engine, {request});
  EXPECT_EQ(rated.tokens.size(), kLength - 1);
  EXPECT_EQ(rated.yielded, 0u);
  EXPECT_EQ(rated.finish, FinishReason::kLength);
  EXPECT_EQ(engine->stats().output_tokens, 0u);
}

TEST(Engine, MeasuresStepTimesOnlyIfStepsHaveABound) {
  EngineOptions options = Tiny(64);
  EXPECT_FALSE(Start(options)->ServerInfo().Find("step_times"));
  options.has_frontend = true;
  const auto engine = Start(options);
  const Json info = engine->ServerInfo();
  ASSERT_TRUE(info.Find("step_times"));
  EXPECT_GT(info.Find("step_times")->Find("seconds")->array()[0].number(), 0);
  options.max_step_ms = 0;
  EXPECT_FALSE(Start(options)->ServerInfo().Find("step_times"));
}

TEST(Engine, TellsThePagesOfEachNode) {
  const auto engine = Start(Tiny(64));
  const Json placement = *engine->ServerInfo().Find("placement");
  uint64_t bytes = 0, pages = 0;
  for (const Json& node : placement.array().at(0).Find("weights")->array()) {
    bytes += static_cast<uint64_t>(node.Find("bytes")->integer());
    pages += static_cast<uint64_t>(node.Find("pages")->integer());
  }
  EXPECT_EQ(bytes, engine->info().weight_bytes);
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  EXPECT_EQ(pages, (bytes + page - 1) / page) << "one node holds them";
}

// The plan's nodes decide what is remote: without any, nothing is known to be.
TEST(Engine, TellsTheShareOfPagesOnOtherNodesThanPlanned) {
  const auto engine = Start(Tiny(64));
  const Json rank = engine->ServerInfo().Find("placement")->array().at(0);
  for (const char* memory : {"weights", "kv", "workspace"}) {
    const Json& share = *rank.Find("remote_share")->Find(memory);
    uint64_t planned = 0, all = 0;
    for (const Json& node : rank.Find(memory)->array()) {
      const auto bytes = static_cast<uint64_t>(node.Find("bytes")->integer());
      all += bytes;
      for (const Json& id : rank.Find("nodes")->array())
        if (id == *node.Find("node")) planned += bytes;
    }
    ASSERT_GT(all, 0u) << memory;
    if (rank.Find("nodes")->array().empty())
      EXPECT_TRUE(share.is_null()) << memory;
    else
      EXPECT_DOUBLE_EQ(share.number(), 1 - static_cast<double>(planned) / static_cast<double>(all))
          << memory;
  }
}

TEST(Engine, EndsAnAbortedRequestWithOneEventAndFreesItsBlocks) {
  std::mt19937 rng(9);
  const auto engine = Start(Tiny(64));
  Request request{5, RandomIds(rng, 30), {}, false};
  request.params.max_tokens = 50;
  request.params.ignore_eos = true;
  ASSERT_TRUE(engine->Add(request));
  std::vector<TokenEvent> events;
  engine->Step(events);
  engine->Abort(5);
  engine->Abort(5);
  EXPECT_FALSE(engine->idle());
  events.clear();
  engine->Step(events);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].finish, FinishReason::kAborted);
  EXPECT_FALSE(events[0].has_token);
  EXPECT_TRUE(engine->idle());
  EXPECT_EQ(engine->stats().blocks_used, 0u);
}

TEST(Engine, LeavesItselfUnchangedAfterARefusal) {
  const auto engine = Start(Tiny(64));
  EXPECT_FALSE(engine->Add({1, {5, 100000}, {}, false}));
  EXPECT_FALSE(engine->Add({2, {}, {}, false}));
  EXPECT_FALSE(engine->Add({3, std::vector<int32_t>(kLength, 5), {}, false}));
  EXPECT_TRUE(engine->Add({4, std::vector<int32_t>(kLength, 5), {}, true})) << "nothing follows it";
  std::vector<TokenEvent> events;
  while (!engine->idle()) engine->Step(events);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].request, 4u);
}

// Sequences that read a common beginning together get the tokens that each gets alone.
TEST(Engine, SharedReadsOfAPrefixDoNotChangeTheTokens) {
  std::mt19937 rng(12);
  const std::vector<int32_t> common = RandomIds(rng, 85), longer = RandomIds(rng, 16);
  std::vector<Request> requests;
  for (uint64_t id = 0; id < 9; ++id) {
    Request request{id, common, {}, false};
    if (id >= 3)  // a branch that shares more
      request.prompt_ids.insert(request.prompt_ids.end(), longer.begin(), longer.end());
    request.prompt_ids.push_back(static_cast<int32_t>(2 + id));
    request.params.max_tokens = 20;
    request.params.ignore_eos = true;
    requests.push_back(std::move(request));
  }
  EngineOptions options = Tiny(128);
  options.prefix_caching = false;
  const auto alone = Start(options);
  const Outputs want = RunAll(*alone, requests);
  EXPECT_EQ(alone->stats().shared_kv_bytes, 0u);
  options.prefix_caching = true;
  const auto together = Start(options);
  RunAll(*together, {requests[0]});  // leaves its blocks behind
  EXPECT_EQ(RunAll(*together, requests), want);
  EXPECT_GE(together->stats().shared_kv_bytes, 8u * 5 * kBlockBytes);  // one step at least
}

TEST(Engine, ReusesACachedPrefixUntilItIsDropped) {
  std::mt19937 rng(11);
  const auto engine = Start(Tiny(64));
  Request request{1, RandomIds(rng, 40), {}, false};
  request.params.max_tokens = 1;
  const auto cached_of = [&] {
    CHECK(engine->Add(request));
    std::vector<TokenEvent> events;
    engine->Step(events);
    return events.at(0).cached_tokens;
  };
  EXPECT_EQ(cached_of(), 0u);
  EXPECT_EQ(cached_of(), 32u);
  engine->DropPrefixCache();
  EXPECT_EQ(cached_of(), 0u);
}

TEST(Engine, SharesAPrefixAmongRequestsOfOneSaltOnly) {
  std::mt19937 rng(11);
  const auto engine = Start(Tiny(64));
  Request request{1, RandomIds(rng, 40), {}, false};
  request.params.max_tokens = 1;
  const auto cached_of = [&](const char* salt) {
    request.cache_salt = salt;
    CHECK(engine->Add(request));
    std::vector<TokenEvent> events;
    engine->Step(events);
    return events.at(0).cached_tokens;
  };
  for (const char* salt : {"", "mine", "yours"}) EXPECT_EQ(cached_of(salt), 0u) << salt;
  for (const char* salt : {"", "mine", "yours"}) EXPECT_EQ(cached_of(salt), 32u) << salt;
}

// Bytes of KV on any node.
uint64_t ResidentKv(const Engine& engine) {
  uint64_t bytes = 0;
  const Json info = engine.ServerInfo();
  for (const Json& rank : info.Find("placement")->array())
    for (const Json& node : rank.Find("kv")->array())
      bytes += static_cast<uint64_t>(node.Find("bytes")->integer());
  return bytes;
}

TEST(EngineLoop, TouchesTheKvCacheOfAServerBeforeItIsUsed) {
  EngineOptions options = Tiny(4096);
  options.max_num_seqs = 256;
  const auto batch = Start(options);
  EXPECT_FALSE(batch->Prepare()) << "a batch may never use it";
  options.has_frontend = true;
  const auto server = Start(options);
  const uint64_t before = ResidentKv(*server);
  EXPECT_LT(before, server->info().kv_bytes / 2);
  int pieces = 0;
  while (server->Prepare()) ASSERT_LT(++pieces, 1000);
  EXPECT_GE(ResidentKv(*server), server->info().kv_bytes);
}

// Also while sequences are in the memory that is touched.
TEST(EngineLoop, TouchingTheKvCacheChangesNoToken) {
  EngineOptions options = Tiny(4096);
  const Outputs expected = RunAll(*Start(options), Requests());
  options.has_frontend = true;
  const auto server = Start(options);
  EXPECT_EQ(RunAll(*server, Requests()), expected);
  while (server->Prepare()) continue;
  EXPECT_EQ(RunAll(*server, Requests()), expected);
}

}  // namespace
}  // namespace pinion
