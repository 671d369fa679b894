#include "engine/run/capacity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <limits>

#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/checkpoint/preset.h"
#include "engine/decoder/kv_cache.h"
#include "engine/run/start.h"
#include "tests/engine/decoder/golden.h"
#include "tests/engine/run/test_target.h"

namespace pinion {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Llama-3.2-1B's shape on an imagined machine with as much memory free as a test says.
struct Scene {
  DecoderSpec spec = *ReadSpec(*PresetConfig("llama-3.2-1b"));
  DecoderOptions decoder;
  EngineOptions options;
  Machine machine = *ImagineMachine("pack:1 numa:1 core:4 pu:1");
  Budget budget = *ComputeBudget(machine);
  std::vector<RankNeeds> needs;

  explicit Scene(int ranks) {
    options.model = "preset:llama-3.2-1b";
    options.tensor_parallel = ranks;
    needs = CountNeeds(spec, decoder, {ranks});
    machine.nodes[0].memory_bytes = 0;  // unknown: only the budget counts
  }
  Status Check(size_t length = 2048) const {
    return CheckCapacity(needs, options, length, machine, budget,
                         *PlanFor(options, machine, budget));
  }
  // Bytes that caches of so many blocks take, beside the rest.
  uint64_t Allocated(size_t blocks) const {
    uint64_t bytes = 0;
    for (size_t rank = 0; rank < needs.size(); ++rank) {
      const Shard shard = MakeShard(spec, options.tensor_parallel, static_cast<int>(rank));
      bytes += needs[rank].weights + needs[rank].workspace +
               KvCache::Allocate(spec, shard, decoder.cached(), decoder.block_tokens, blocks)
                   ->storage()
                   .size_bytes();
    }
    return bytes;
  }
};

// gemma-3-1b: 4 of 26 layers see everything, in one table; the others 512 tokens, in six.
TEST(BlocksOfSequence, CountsWindowsOnce) {
  DecoderOptions decoder;
  EngineOptions options;
  const auto needs = CountNeeds(*ReadSpec(*PresetConfig("gemma-3-1b")), decoder, {1});
  const auto block = static_cast<size_t>(options.block_size);
  EXPECT_EQ(BlocksOfSequence(needs, options, 2 * block), 7u * 2);
  EXPECT_EQ(BlocksOfSequence(needs, options, 100 * block), 100 + 6 * (512 / block + 1));
  EXPECT_EQ(needs[0].kv.block_bytes(), 4u * decoder.block_tokens * 2 * 256 * 2);
}

// 33 blocks: the last span of each layer holds one of 32.
TEST(CheckCapacity, CountsTheLastSpansAtTheirAllocatedSize) {
  for (const int ranks : {1, 2}) {
    Scene scene(ranks);
    scene.options.kv_cache_bytes = scene.needs[0].kv.block_bytes() * 33;
    scene.budget.memory_available_bytes = scene.Allocated(33);
    EXPECT_TRUE(scene.Check());
    --scene.budget.memory_available_bytes;
    EXPECT_FALSE(scene.Check());
  }
}

TEST(CheckCapacity, CountsTheSmallestCacheAtItsAllocatedSize) {
  Scene scene(1);
  scene.decoder.block_tokens = 48;  // 2048 tokens are 43 blocks
  scene.options.block_size = 48;
  scene.needs = CountNeeds(scene.spec, scene.decoder, {1});
  scene.budget.memory_available_bytes = scene.Allocated(43);
  EXPECT_TRUE(scene.Check());
  --scene.budget.memory_available_bytes;
  EXPECT_FALSE(scene.Check());
}

// The model's own length is lowered to what fits; a --max-model-len is not.
TEST(CheckCapacity, CountsASequenceOfTheLengthAskedFor) {
  Scene scene(1);
  const size_t block_tokens = scene.decoder.block_tokens, length = 32768;
  scene.options.block_size = static_cast<int>(block_tokens);
  scene.budget.memory_available_bytes = scene.Allocated(length / block_tokens) - 1;
  EXPECT_TRUE(scene.Check(length));
  scene.options.max_model_len = static_cast<int>(length);
  EXPECT_FALSE(scene.Check(length));
  ++scene.budget.memory_available_bytes;
  EXPECT_TRUE(scene.Check(length));
}

TEST(CheckCapacity, SuggestsASizeThatFits) {
  for (const int ranks : {1, 2}) {
    Scene scene(ranks);
    scene.options.kv_cache_bytes = uint64_t{1} << 40;
    scene.budget.memory_available_bytes = scene.Allocated(200) - (16 << 20);  // half a span less
    const std::string refused = scene.Check().error().message;
    constexpr std::string_view kOffer = "--kv-cache-space of at most ";
    ASSERT_THAT(refused, HasSubstr(kOffer));
    const std::string offer = refused.substr(refused.find(kOffer) + kOffer.size());
    scene.options.kv_cache_bytes =
        *ParseBytes(offer.substr(0, offer.find(" per rank")), 1, "the offer");
    EXPECT_GT(*scene.options.kv_cache_bytes, uint64_t{32} << 20);
    EXPECT_TRUE(scene.Check()) << offer;
  }
}

// A node that others fill, though much is installed there and much is free elsewhere.
TEST(CheckCapacity, RefusesAFullNode) {
  Scene scene(1);
  scene.options.kv_cache_bytes = scene.needs[0].kv.block_bytes() * 33;
  scene.machine.nodes[0].memory_bytes = uint64_t{1} << 40;
  scene.budget.memory_available_bytes = uint64_t{1} << 40;
  scene.budget.node_available_bytes[0] = scene.Allocated(33);
  EXPECT_TRUE(scene.Check());
  --scene.budget.node_available_bytes[0];
  const Status refused = scene.Check();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("rank 0 needs "));
  EXPECT_THAT(refused.error().message, HasSubstr(" on NUMA node 0, which has "));
  EXPECT_THAT(refused.error().message, HasSubstr("use --kv-cache-dtype int8"));
  scene.budget.node_available_bytes.clear();
  EXPECT_TRUE(scene.Check()) << "unknown: what is installed counts";
}

// The rank of the small node decides, not all ranks together; each way out is one that fits.
TEST(CheckCapacity, NamesTheRankOfAFullNodeAndWaysOut) {
  Scene scene(2);
  scene.machine = *ImagineMachine("numa:4 core:4 pu:1");
  scene.budget = *ComputeBudget(scene.machine);
  scene.options.threads_bind = "0-3|4-15";
  scene.options.kv_cache_bytes = uint64_t{4} << 30;
  scene.budget.memory_available_bytes = uint64_t{1} << 40;
  const uint64_t fixed = scene.needs[0].weights + scene.needs[0].workspace;
  for (int node = 0; node < 4; ++node)
    scene.budget.node_available_bytes[node] = fixed + (uint64_t{1} << 30);
  const Status refused = scene.Check();
  ASSERT_FALSE(refused);
  const std::string& message = refused.error().message;
  EXPECT_THAT(message, HasSubstr("rank 0 needs "));
  EXPECT_THAT(message, HasSubstr(" on NUMA node 0, which has "));
  EXPECT_THAT(message, HasSubstr("use -tp 4, or --kv-cache-space "));
  EXPECT_THAT(message, Not(HasSubstr("int8"))) << "half of the cache is still too much";
  const std::string offer = message.substr(message.find("--kv-cache-space ") + 17);
  scene.options.kv_cache_bytes = *ParseBytes(offer.substr(0, offer.find(" (")), 1, "the offer");
  EXPECT_GT(*scene.options.kv_cache_bytes, uint64_t{900} << 20);
  EXPECT_TRUE(scene.Check()) << offer;
  scene.options.kv_cache_bytes = uint64_t{1500} << 20;
  EXPECT_THAT(scene.Check().error().message, HasSubstr("--kv-cache-dtype int8"));
}

// One rank on the first of two nodes, which has room for a quarter of its cache.
Scene OnASmallNode(const char* policy) {
  Scene scene(1);
  scene.machine = *ImagineMachine("numa:2 core:2 pu:1");
  scene.budget = *ComputeBudget(scene.machine);
  scene.options.threads_bind = "0-1";
  scene.options.memory_policy = policy;
  scene.options.kv_cache_bytes = uint64_t{4} << 30;
  scene.budget.memory_available_bytes = uint64_t{1} << 40;
  scene.budget.node_available_bytes[0] =
      scene.needs[0].weights + scene.needs[0].workspace + (uint64_t{1} << 30);
  scene.budget.node_available_bytes[1] = uint64_t{1} << 39;
  return scene;
}

TEST(CheckCapacity, APolicyThatMaySpillCountsAllNodes) {
  for (const char* policy : {"local", "strict"}) {
    const Status refused = OnASmallNode(policy).Check();
    ASSERT_FALSE(refused) << policy;
    EXPECT_THAT(refused.error().message,
                AllOf(HasSubstr("rank 0 needs "), HasSubstr(" on NUMA node 0, which has "),
                      HasSubstr("or --memory-policy preferred")));
  }
  for (const char* policy : {"preferred", "interleave"}) {
    Scene scene = OnASmallNode(policy);
    EXPECT_TRUE(scene.Check()) << policy;
    scene.budget.memory_available_bytes = uint64_t{5} << 30;
    EXPECT_THAT(scene.Check().error().message, HasSubstr("of memory is free")) << policy;
  }
}

// Else the kernel would end the process when the cache is first used.
TEST(MostKvBytes, IsTheRestOfAStrictRanksNode) {
  const auto most = [](const char* policy, const char* bind, int ranks) {
    Scene scene = OnASmallNode(policy);
    scene.options.tensor_parallel = ranks;
    scene.options.threads_bind = bind;
    scene.needs = CountNeeds(scene.spec, scene.decoder, {ranks});
    scene.budget.node_available_bytes[0] =
        scene.needs[0].weights + scene.needs[0].workspace + (uint64_t{1} << 30);
    return MostKvBytes(scene.needs, scene.options, scene.machine, scene.budget,
                       *PlanFor(scene.options, scene.machine, scene.budget));
  };
  for (const char* policy : {"local", "preferred", "interleave"})
    EXPECT_EQ(most(policy, "0-1", 1), std::numeric_limits<uint64_t>::max()) << policy;
  EXPECT_EQ(most("strict", "0-1", 1), uint64_t{1} << 30);
  EXPECT_EQ(most("strict", "0-1|2-3", 2), uint64_t{2} << 30) << "as much for the other rank";
  EXPECT_LT(most("strict", "0|1", 2), uint64_t{1} << 30) << "both ranks' weights are there";
}

TEST(CheckCapacity, LeavesRoomForRequests) {
  Scene scene(1);
  scene.options.kv_cache_bytes = scene.needs[0].kv.block_bytes() * 33;
  scene.options.front_end_bytes = uint64_t{1} << 29;
  scene.budget.memory_available_bytes = scene.Allocated(33) + scene.options.front_end_bytes;
  EXPECT_TRUE(scene.Check());
  --scene.budget.memory_available_bytes;
  const Status refused = scene.Check();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("the front end may take 512 MiB"));
  scene.budget.memory_available_bytes = 1000;  // less than that
  EXPECT_FALSE(scene.Check());
}

// Llama-3.2-1B's hidden states of a step are 2,048 x 2,048 floats, which is 16 MiB.
TEST(CountNeeds, StagesNeedTheMemoryThatTheyKeepForEachOther) {
  const Scene scene(1);
  const auto kept = [&](const Partition& partition, size_t processes) {
    const auto needs = CountNeeds(scene.spec, scene.decoder, partition,
                                  StagePlaces::Of(partition, processes).value());
    const auto stages = StageSpecs(scene.spec, scene.decoder.formats, partition.stages);
    std::vector<uint64_t> mib;
    for (int rank = 0; rank < partition.ranks(); ++rank) {
      const DecoderSpec& stage = stages[static_cast<size_t>(partition.StageOfRank(rank))];
      mib.push_back(
          (needs[static_cast<size_t>(rank)].workspace -
           WorkspaceBytes(stage, scene.decoder, partition.tensor, rank % partition.tensor)) >>
          20);
    }
    return mib;
  };
  EXPECT_THAT(kept({2, 1}, 1), ElementsAre(0, 0));
  EXPECT_THAT(kept({1, 2}, 1), ElementsAre(0, 32));
  EXPECT_THAT(kept({1, 2}, 2), ElementsAre(16, 16));
  EXPECT_THAT(kept({2, 4}, 1), ElementsAre(0, 0, 64, 0, 64, 0, 64, 0));
  EXPECT_THAT(kept({2, 4}, 2), ElementsAre(0, 0, 80, 0, 16, 0, 64, 0));
  EXPECT_THAT(kept({2, 2}, 4), ElementsAre(16, 16, 16, 16)) << "half of a stage in each process";
  const auto needs = CountNeeds(scene.spec, scene.decoder, {1, 4});
  EXPECT_EQ(needs[3].workspace - needs[2].workspace, 0u) << "stages 0 and 1 of one process";
}

// Everything that loads, in every format. Weights are counted by the layout that places them, so
// they are equal to the byte; the cache's last spans, counted whole, may reach beyond its blocks.
TEST(NeedsFor, IsTheMemoryOfTheEngineAfterLoading) {
  std::vector<std::string> models;
  const std::vector<std::string> fixtures = tests::ModelFixtures();
  for (const std::string& name : fixtures) models.push_back(testing::ModelFolder(name));
  for (const auto& entry : std::filesystem::directory_iterator(tests::TestData() + "/quantised"))
    if (entry.is_directory() || entry.path().extension() == ".gguf") models.push_back(entry.path());
  SetLogLevel(LogLevel::kError);
  ASSERT_GT(models.size(), fixtures.size() + 20);
  for (const std::string& model : models) {
    for (const char* dtype : {"auto", "float32"}) {
      SCOPED_TRACE(model + " in " + dtype);
      EngineOptions options;
      options.model = model;
      options.dtype = dtype;
      options.kv_cache_bytes = uint64_t{256} << 20;
      options.tensor_parallel = 2;
      options.threads_bind = "nobind";
      testing::SetTestTarget(options);
      const auto planned = PlanModel(options);
      ASSERT_TRUE(planned) << planned.error().message;
      const auto needs = NeedsFor(options, *planned);
      ASSERT_TRUE(needs) << needs.error().message;
      const auto started = StartModel(options);
      ASSERT_TRUE(started) << started.error().message;
      uint64_t weights = 0, kv = 0, spans = 0;
      for (const RankNeeds& rank : *needs) {
        weights += rank.weights;
        kv += rank.kv.StorageBytes(started->info.blocks);
        spans += rank.kv.SpanBytes(started->info.blocks);
      }
      EXPECT_EQ(weights, started->info.weight_bytes);
      EXPECT_GE(kv, started->info.kv_bytes);
      EXPECT_LT(kv, started->info.kv_bytes + spans);
      EXPECT_LE(weights + kv,
                1.1 * static_cast<double>(started->info.weight_bytes + started->info.kv_bytes));
    }
  }
}

// Llama-3.1-8B as AWQ would store its layers: 4 bits a weight and, per group of 128, a scale and an
// offset in 16 bits each.
TEST(NeedsFor, PackedMatricesCountAsPacked) {
  const DecoderSpec spec = *ReadSpec(*PresetConfig("llama-3.1-8b"));
  DecoderOptions decoder;
  const double plain = static_cast<double>(CountNeeds(spec, decoder, {1})[0].weights);
  for (int layer = 0; layer < spec.layers; ++layer)
    for (const auto role :
         {MatrixRole::kQkv, MatrixRole::kO, MatrixRole::kMlpIn, MatrixRole::kDown})
      decoder.formats.Set(layer, role,
                          {.bits = 4,
                           .group = 128,
                           .lowest = 0,
                           .has_offsets = true,
                           .rounding = {},
                           .outliers_apart = true,
                           .group_of = {}});
  const double packed = static_cast<double>(CountNeeds(spec, decoder, {1})[0].weights);
  const double layers = 32 * (4096.0 * 6144 + 4096.0 * 4096 + 3 * 4096.0 * 14336);
  EXPECT_NEAR(plain - packed, layers * (2 - 0.5 - 4.0 / 128), 0.02 * layers);
}

TEST(SizeKv, KeepsTheLargestRankWithinItsKvSpace) {
  // Six heads over four ranks: the second one's two queries need different KV heads, so it holds
  // twice as much as the others.
  Json config = *PresetConfig("llama-3.2-1b");
  config.Set("num_attention_heads", 6);
  config.Set("num_key_value_heads", 3);
  Scene scene(4);
  scene.needs = CountNeeds(*ReadSpec(config), scene.decoder, {4});
  ASSERT_GT(scene.needs[1].kv.block_bytes(), scene.needs[3].kv.block_bytes());
  const uint64_t space = scene.needs[1].kv.block_bytes() * 10;
  scene.options.kv_cache_bytes = space + 1;
  EXPECT_EQ(*SizeKv(scene.needs, scene.options, 2048, 0), 10u);
  scene.options.kv_cache_bytes = space - 1;
  EXPECT_EQ(*SizeKv(scene.needs, scene.options, 2048, 0), 9u);
}

// Half of what is free, over all ranks, but no more than all sequences at their longest fill.
TEST(SizeKv, TakesHalfOfFreeMemoryByDefault) {
  for (const int ranks : {1, 2}) {
    Scene scene(ranks);
    scene.options.max_num_seqs = 3;
    uint64_t block = 0;
    for (const RankNeeds& rank : scene.needs) block += rank.kv.block_bytes();
    const auto blocks = [&](uint64_t available) {
      return *SizeKv(scene.needs, scene.options, 2048, available);
    };
    EXPECT_EQ(blocks(2 * 20 * block), 20u);
    EXPECT_EQ(blocks(2 * 20 * block - 1), 19u);
    EXPECT_EQ(blocks(0), 1u);
    const size_t most = 3 * 2048 / static_cast<size_t>(scene.options.block_size);
    EXPECT_EQ(blocks(uint64_t{1} << 50), most);
  }
}

// A step of 100 tokens in sequences of 1 and of 5 tokens, in blocks of 16: each may end in a block
// of its own. Four sequences of 16 tokens never need more than a block each.
TEST(SizeKv, AnEncodersCacheHoldsOneStep) {
  Scene scene(1);
  for (RankNeeds& rank : scene.needs) rank.one_step = true;
  scene.options.block_size = 16;
  scene.options.max_num_batched_tokens = 100;
  const auto blocks = [&](int sequences, size_t length) {
    scene.options.max_num_seqs = sequences;
    return *SizeKv(scene.needs, scene.options, length, uint64_t{1} << 50);
  };
  EXPECT_EQ(blocks(100, 100), 7u + 100);
  EXPECT_EQ(blocks(5, 100), 7u + 5);
  EXPECT_EQ(blocks(4, 16), 4u);
}

TEST(SizeKv, TakesMoreThanHalfForASequenceOfTheLengthAskedFor) {
  Scene scene(1);
  const uint64_t block = scene.needs[0].kv.block_bytes();
  const auto length = 100 * static_cast<size_t>(scene.options.block_size);
  scene.options.max_model_len = static_cast<int>(length);
  const auto blocks = [&](uint64_t available) {
    return *SizeKv(scene.needs, scene.options, length, available);
  };
  EXPECT_EQ(blocks(120 * block), 100u);
  EXPECT_EQ(blocks(300 * block), 150u);
  EXPECT_EQ(blocks(90 * block), 90u) << "which is then refused";
  EXPECT_EQ(blocks(0), 1u);
}

}  // namespace
}  // namespace pinion
