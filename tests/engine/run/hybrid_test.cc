// Models with recurrent layers: a sequence's state follows it through chunks, batches and
// preemptions, and nothing of another sequence's.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "engine/base/check.h"
#include "engine/base/strings.h"
#include "engine/kv/table_blocks.h"
#include "engine/run/capacity.h"
#include "engine/run/start.h"
#include "engine/spec/attention_spec.h"
#include "tests/engine/run/started_engine.h"
#include "tests/engine/run/test_target.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

constexpr size_t kBlockTokens = 16, kSequences = 5;

struct Sizes {
  uint64_t block = 0, state = 0;
  size_t longest = 0;  // blocks that the longest sequence takes
};

EngineOptions HybridOf(const std::string& model) {
  setenv("OMP_NUM_THREADS", "1", 1);  // what nobind goes by
  EngineOptions options;
  options.model = StrCat(tests::TestData(), "/models/", model);
  options.dtype = "float32";
  options.threads_bind = "nobind";
  options.block_size = kBlockTokens;
  options.max_model_len = 128;
  options.max_num_seqs = kSequences;
  testing::SetTestTarget(options);
  return options;
}

EngineOptions Hybrid() { return HybridOf("qwen3.5-text"); }

Sizes SizesOf(const EngineOptions& options) {
  const PlannedModel model = *PlanModel(options);
  Sizes most;  // of a rank
  const std::vector<RankNeeds> needs = *NeedsFor(options, model);
  for (const RankNeeds& rank : needs) {
    most.block = std::max(most.block, rank.kv.block_bytes());
    most.state = std::max(most.state, rank.state);
    most.longest = MostBlocks(rank.reaches, 128, 1, kBlockTokens);
  }
  return most;
}

// Room for the states of kSequences sequences and for so many blocks.
std::unique_ptr<Engine> StartWithBlocks(EngineOptions options, uint64_t blocks) {
  const Sizes sizes = SizesOf(options);
  options.kv_cache_bytes = kSequences * sizes.state + blocks * sizes.block;
  return Start(options);
}

std::vector<Request> HybridRequests() {
  std::mt19937 rng(20261123);
  std::vector<Request> requests;
  for (uint64_t id = 0; id < 10; ++id) {
    Request request;
    request.id = id;
    for (size_t i = 0; i < 3 + 7 * id; ++i)
      request.prompt_ids.push_back(static_cast<int32_t>(3 + rng() % 440));
    request.params.max_tokens = 40;
    request.params.ignore_eos = true;
    requests.push_back(std::move(request));
  }
  return requests;
}

const Outputs& AloneOf(const std::string& model) {
  static std::map<std::string, Outputs> known;
  const auto [found, is_new] = known.try_emplace(model);
  if (!is_new) return found->second;
  const auto engine = StartWithBlocks(HybridOf(model), 200);
  for (const Request& request : HybridRequests()) found->second.merge(RunAll(*engine, {request}));
  return found->second;
}

// Every kind of state.
class HybridKinds : public ::testing::TestWithParam<const char*> {
 protected:
  EngineOptions options() const { return HybridOf(GetParam()); }
  const Outputs& alone() const { return AloneOf(GetParam()); }
};

TEST_P(HybridKinds, GivesEveryRequestTheTokensItGetsAlone) {
  for (const int chunk : {1, 7, 2048}) {
    EngineOptions options = this->options();
    options.max_num_batched_tokens = chunk;
    const auto engine = StartWithBlocks(options, 200);
    EXPECT_EQ(RunAll(*engine, HybridRequests()), alone()) << "steps of " << chunk;
    EXPECT_EQ(RunAll(*engine, HybridRequests()), alone()) << "again, over states that others left";
  }
}

// Two key heads: with three ranks one has no head at all. Eight of Mamba-2: with three ranks they
// are cut unevenly, and within a group.
TEST_P(HybridKinds, GivesTheSameTokensOnSeveralRanks) {
  for (const int ranks : {2, 3}) {
    EngineOptions options = this->options();
    options.tensor_parallel = ranks;
    options.max_num_batched_tokens = 20;
    EXPECT_EQ(RunAll(*StartWithBlocks(options, 200), HybridRequests()), alone()) << ranks;
  }
}

TEST_P(HybridKinds, GivesTheSameTokensWithStepsInFlight) {
  EngineOptions options = this->options();
  options.pipeline_parallel = 2;
  options.max_num_batched_tokens = 20;
  const auto engine = StartWithBlocks(options, 200);
  EXPECT_EQ(RunAll(*engine, HybridRequests()), alone());
  EXPECT_EQ(RunAll(*engine, HybridRequests()), alone()) << "again, over states that are kept";
}

// Four ranks hold two KV heads twice: their states are small beside a block. There are as few
// blocks as leave every sequence a state, since states get half of the space at most.
TEST_P(HybridKinds, RecomputesTheStateOfAPreemptedSequence) {
  EngineOptions options = this->options();
  options.tensor_parallel = 4;
  options.prefix_caching = false;  // all of the states are for sequences that run
  options.max_num_batched_tokens = 13;
  const Sizes sizes = SizesOf(options);
  const uint64_t blocks = (kSequences * sizes.state + sizes.block - 1) / sizes.block;
  const auto engine = StartWithBlocks(options, std::max<uint64_t>(blocks, sizes.longest + 1));
  EXPECT_EQ(RunAll(*engine, HybridRequests()), alone());
  EXPECT_GT(engine->stats().scheduler.preemptions, 0u);
}

// Prompts of 64 common tokens and others of their own: the first keeps its state, the second that
// behind the common ones, and the others begin there. `Alone` computes every one from its
// beginning.
TEST_P(HybridKinds, BeginsBehindPrefixesWhoseStateIsKept) {
  std::vector<Request> requests = HybridRequests();
  requests.erase(requests.begin(), requests.begin() + 5);
  const std::vector<int32_t> common(requests.back().prompt_ids.begin(),
                                    requests.back().prompt_ids.begin() + 64);
  for (Request& request : requests) {
    request.prompt_ids.insert(request.prompt_ids.begin(), common.begin(), common.end());
    request.prompt_ids.resize(std::min<size_t>(request.prompt_ids.size(), 85));
  }
  Outputs apart;
  EngineOptions options = this->options();
  options.prefix_caching = false;
  const auto cold = StartWithBlocks(options, 200);
  for (const Request& request : requests) apart.merge(RunAll(*cold, {request}));
  EXPECT_EQ(cold->stats().kv.prefix_hit_tokens, 0u);
  options.prefix_caching = true;
  for (const int ranks : {1, 2}) {
    options.tensor_parallel = ranks;
    const auto engine = StartWithBlocks(options, 200);
    for (const int round : {1, 2}) {
      Outputs got;
      for (const Request& request : requests) got.merge(RunAll(*engine, {request}));
      EXPECT_EQ(got, apart) << ranks << " ranks, round " << round;
      const uint64_t prefixes = round == 1 ? 3 : 3 + 5;
      EXPECT_GE(engine->stats().kv.prefix_hit_tokens, prefixes * 64);
    }
    EXPECT_EQ(RunAll(*engine, requests), apart) << "all at once";
    engine->DropPrefixCache();
    const uint64_t before = engine->stats().kv.prefix_hit_tokens;
    EXPECT_EQ(RunAll(*engine, {requests[0]}).at(requests[0].id), apart.at(requests[0].id));
    EXPECT_EQ(engine->stats().kv.prefix_hit_tokens, before);
  }
}

// Layers of one part alone come after each other in the last two.
INSTANTIATE_TEST_SUITE_P(Models, HybridKinds,
                         ::testing::Values("qwen3.5-text", "lfm2", "kimi-linear", "bamba",
                                           "granite4-dense", "falconh1", "nemotronh",
                                           "nemotronh-moe"),
                         [](const auto& info) { return tests::TestName(info.param); });
// The same rules where no layer has a state, but layers hide tokens or choose them.
INSTANTIATE_TEST_SUITE_P(HiddenTokens, HybridKinds, ::testing::Values("llama4", "deepseekv3.2"),
                         [](const auto& info) { return tests::TestName(info.param); });

TEST(Hybrid, RunsNoMoreSequencesThanItHasStatesFor) {
  EngineOptions options = Hybrid();
  const Sizes sizes = SizesOf(options);
  options.kv_cache_bytes = 2 * 3 * sizes.state + 1;  // half of it for states
  options.max_model_len = 80;                        // fits the other half
  const auto engine = Start(options);
  EXPECT_EQ(engine->info().states, 3u);
  std::vector<Request> requests = HybridRequests();
  requests.resize(6);
  for (const Request& request : requests) ASSERT_TRUE(engine->Add(request));
  std::vector<TokenEvent> events;
  size_t most = 0;
  while (!engine->idle()) {
    engine->Step(events);
    most = std::max(most, engine->stats().scheduler.running);
  }
  EXPECT_EQ(most, 3u);
}

// Three layers: the convolution's last 3 inputs of 2 x 2 x 16 + 4 x 16 channels, and 4 heads of
// 16 x 16.
TEST(Hybrid, CountsItsStates) {
  const EngineOptions options = Hybrid();
  EXPECT_EQ(SizesOf(options).state, 3u * (3 * 128 + 4 * 16 * 16) * 4);
  const auto engine = StartWithBlocks(options, 100);
  EXPECT_GE(engine->info().state_bytes, kSequences * SizesOf(options).state);
  // One layer of four has keys and values.
  EXPECT_EQ(KvBytesPerToken(PlanModel(options)->spec, kernels::KvDtype::kF32), 2u * 2 * 32 * 4);
}

// Three of five layers: two inputs of each of 64 channels.
TEST(Hybrid, CountsTheStatesOfShortConvolutions) {
  const EngineOptions options = HybridOf("lfm2");
  EXPECT_EQ(SizesOf(options).state, 3u * 2 * 64 * 4);
  EXPECT_EQ(StateBytesPerSequence(PlanModel(options)->spec), 3u * 2 * 64 * 4);
  EXPECT_EQ(KvBytesPerToken(PlanModel(options)->spec, kernels::KvDtype::kF32), 2u * 2 * 32 * 4);
}

// Three of four layers: three inputs of each of 8 x 16 + 2 x 2 x 16 channels, and 8 heads of 16 x
// 16; of two ranks, half of the heads and one of the groups.
TEST(Hybrid, CountsTheStatesOfMamba) {
  EngineOptions options = HybridOf("granite4-dense");
  EXPECT_EQ(SizesOf(options).state, 3u * (3 * 192 + 8 * 16 * 16) * 4);
  EXPECT_EQ(StateBytesPerSequence(PlanModel(options)->spec), 3u * (3 * 192 + 8 * 16 * 16) * 4);
  EXPECT_EQ(KvBytesPerToken(PlanModel(options)->spec, kernels::KvDtype::kF32), 2u * 2 * 16 * 4);
  options.tensor_parallel = 2;
  EXPECT_EQ(SizesOf(options).state, 3u * (3 * 96 + 4 * 16 * 16) * 4);
  options = HybridOf("bamba");  // both ranks need the one group
  options.tensor_parallel = 2;
  EXPECT_EQ(SizesOf(options).state, 3u * (3 * 96 + 4 * 16 * 16) * 4);
}

// Three layers, each with keys and values and a state: three inputs of each of 6 x 16 + 2 x 16
// channels, and 6 heads of 16 x 16.
TEST(Hybrid, CountsBothOfLayersThatDoBoth) {
  const EngineOptions options = HybridOf("falconh1");
  EXPECT_EQ(SizesOf(options).state, 3u * (3 * 128 + 6 * 16 * 16) * 4);
  EXPECT_EQ(KvBytesPerToken(PlanModel(options)->spec, kernels::KvDtype::kF32), 3u * 2 * 2 * 16 * 4);
}

// Of seven layers three have a state and one has keys and values.
TEST(Hybrid, CountsNothingOfLayersWithoutMixer) {
  const EngineOptions options = HybridOf("nemotronh");
  EXPECT_EQ(SizesOf(options).state, 3u * (3 * 192 + 8 * 16 * 16) * 4);
  EXPECT_EQ(KvBytesPerToken(PlanModel(options)->spec, kernels::KvDtype::kF32), 2u * 2 * 16 * 4);
}

TEST(SizeStates, TakeHalfOfTheirSpaceAtMost) {
  EngineOptions options;
  options.max_num_seqs = 10;
  std::vector<RankNeeds> needs(2);
  needs[0].state = 100, needs[1].state = 60;
  options.prefix_caching = false;
  const auto fitting = [&](std::optional<uint64_t> space, uint64_t available) {
    options.kv_cache_bytes.reset();
    if (space) options.kv_cache_bytes = *space;
    return SizeStates(needs, options, available).running;
  };
  EXPECT_EQ(fitting(1000, 0), 5u);
  EXPECT_EQ(fitting(999, 0), 4u);
  EXPECT_EQ(fitting(1 << 20, 0), 10u) << "no more than run at once";
  EXPECT_EQ(fitting(10, 0), 1u) << "SizeKv then finds no room for a block";
  EXPECT_EQ(fitting({}, 4 * 160 * 7), 7u);
  EXPECT_EQ(fitting({}, 4 * 160 * 7 - 1), 6u);
  needs[0].state = needs[1].state = 0;
  EXPECT_EQ(fitting(1, 1), 10u) << "nothing recurrent";
}

TEST(SizeStates, LeaveAQuarterToPrefixes) {
  EngineOptions options;
  options.max_num_seqs = 10;
  options.prefix_caching = true;
  std::vector<RankNeeds> needs(1);
  needs[0].state = 100;
  const auto places = [&](uint64_t states) {
    options.kv_cache_bytes = 2 * 100 * states;
    const StatePlaces sized = SizeStates(needs, options, 0);
    return std::pair(sized.running, sized.kept);
  };
  EXPECT_EQ(places(8), std::pair(6ul, 2ul));
  EXPECT_EQ(places(3), std::pair(3ul, 0ul));
  EXPECT_EQ(places(0), std::pair(1ul, 0ul));
  EXPECT_EQ(places(15), std::pair(10ul, 5ul)) << "more than run at once";
  EXPECT_EQ(places(1000), std::pair(10ul, 10ul)) << "no more than run at once of either";
  needs[0].state = 0;
  EXPECT_EQ(places(1), std::pair(10ul, 10ul)) << "a process without states limits no other";
  options.prefix_caching = false;
  EXPECT_EQ(places(1), std::pair(10ul, 0ul));
}

}  // namespace
}  // namespace pinion
