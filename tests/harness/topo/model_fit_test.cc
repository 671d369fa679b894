#include "harness/topo/model_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/run/start.h"
#include "harness/topo/draw.h"
#include "harness/topo/examine.h"
#include "tests/test_data.h"

namespace pinion::harness {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kMib = 1024 * 1024;

// A machine of two nodes, for a fixture.
TopologyOptions On(const std::string& memory, const std::string& model) {
  TopologyOptions options;
  options.machine = StrCat("pack:2 numa:1(memory=", memory, ") core:4 pu:1");
  options.engine.model = StrCat(tests::TestData(), "/models/", model);
  options.engine.dtype = "bfloat16";
  options.engine.block_size = 16;
  return options;
}

ModelFit MustFit(const TopologyOptions& options) {
  const auto topology = Examine(options);
  EXPECT_TRUE(topology) << (topology ? "" : topology.error().message);
  return topology && topology->model ? *topology->model : ModelFit{};
}

std::string Drawn(const TopologyOptions& options) {
  const auto topology = Examine(options);
  EXPECT_TRUE(topology) << (topology ? "" : topology.error().message);
  return topology ? DrawTopology(*topology, false) : "";
}

TEST(ModelFit, IsShownForAModelAlone) {
  TopologyOptions options = On("1GiB", "gemma3");
  EXPECT_THAT(Drawn(options), HasSubstr("Gemma3ForCausalLM"));
  options.engine.model.clear();
  EXPECT_THAT(Drawn(options), Not(HasSubstr("cache")));
  EXPECT_TRUE(ToJson(*Examine(options)).Find("model")->is_null());
}

// A head of 64 in bfloat16: 256 bytes a token and layer, of 6 layers, 5 with a window of 16.
TEST(ModelFit, CountsATokenAndASequence) {
  TopologyOptions options = On("1GiB", "gemma3");
  options.engine.max_model_len = 320;
  const ModelFit fit = MustFit(options);
  EXPECT_EQ(fit.kv_bytes_per_token, 6u * 256);
  EXPECT_EQ(fit.sequence_tokens, 320u);
  EXPECT_EQ(fit.kv_bytes_per_sequence, (320u + 5 * 16) * 256);
  EXPECT_EQ(fit.state_bytes_per_sequence, 0u);
  EXPECT_EQ(fit.sequences, 128u) << "--max-num-seqs";
  options.engine.kv_cache_dtype = "int8";
  EXPECT_EQ(MustFit(options).kv_bytes_per_token, 6u * (128 + 2 * 2)) << "with scales";
}

TEST(ModelFit, DrawsEachKindOfLayer) {
  TopologyOptions options = On("1GiB", "gemma3");
  options.engine.max_model_len = 320;
  const std::string picture = Drawn(options);
  EXPECT_THAT(picture, HasSubstr("bfloat16 · 1.5 KiB per token · 100 KiB per sequence of 320"));
  EXPECT_THAT(picture, HasSubstr("windowed: 5 layers · 1.2 KiB per token, at most 16 tokens · "
                                 "20.0 KiB per sequence"));
  EXPECT_THAT(picture, HasSubstr("full: 1 layer · 256 B per token · 80.0 KiB per sequence"));
  EXPECT_THAT(Drawn(On("1GiB", "deepseekv2")), HasSubstr("latent: 3 layers · 384 B per token"));
  EXPECT_THAT(Drawn(On("1GiB", "kimi-linear")),
              HasSubstr("recurrent: 3 layers · 18.8 KiB per sequence of any length"));
}

TEST(ModelFit, RendersJson) {
  TopologyOptions options = On("1GiB", "kimi-linear");
  options.engine.max_model_len = 320;
  const Json model = *ToJson(*Examine(options)).Find("model");
  EXPECT_EQ(model.Find("kv_bytes_per_token")->integer(), 96);
  EXPECT_EQ(model.Find("kv_bytes_per_sequence")->integer(), 96 * 320);
  EXPECT_EQ(model.Find("sequence_tokens")->integer(), 320);
  EXPECT_EQ(model.Find("kinds")->array()[0].Dump(),
            R"({"name":"latent","layers":1,"most_tokens":null,"bytes_per_token":96,)"
            R"("bytes_per_sequence":30720})");
  EXPECT_EQ(*model.Find("kinds")->array()[1].Find("name"), Json("recurrent"));
  EXPECT_EQ(*model.Find("kinds")->array()[1].Find("bytes_per_sequence"),
            *model.Find("state_bytes_per_sequence"));
  EXPECT_TRUE(model.Find("refusal")->is_null());
  options.engine.model = StrCat(tests::TestData(), "/models/gemma3");
  const Json windowed = *ToJson(*Examine(options)).Find("model");
  EXPECT_EQ(windowed.Find("kinds")->array()[0].Find("most_tokens")->integer(), 16);
}

// 20 blocks of 16 tokens each: 119 hold 5 sequences.
TEST(ModelFit, FitsWholeSequences) {
  TopologyOptions options = On("1GiB", "llama");
  options.engine.max_model_len = 320;
  const ModelFit roomy = MustFit(options);
  const uint64_t block = roomy.kv_bytes_per_token * 16;
  EXPECT_EQ(roomy.held_bytes_per_sequence, 20 * block);
  options.engine.kv_cache_bytes = 119 * block;
  EXPECT_EQ(MustFit(options).sequences, 5u);
  options.engine.kv_cache_bytes = 120 * block;
  EXPECT_EQ(MustFit(options).sequences, 6u);
  options.engine.max_num_seqs = 4;
  EXPECT_EQ(MustFit(options).sequences, 4u);
  EXPECT_THAT(Drawn(options), HasSubstr("room       4 sequences of 320 tokens"));
}

TEST(ModelFit, TellsTheLongestSequenceIfNoneOfTheModelsLengthFits) {
  TopologyOptions options = On("1GiB", "llama");
  options.engine.max_model_len = 320;
  options.engine.kv_cache_bytes = 3 * 16 * MustFit(options).kv_bytes_per_token;
  const ModelFit fit = MustFit(options);
  EXPECT_EQ(fit.sequences, 0u);
  EXPECT_EQ(fit.longest_tokens, 48u);
  EXPECT_THAT(Drawn(options), HasSubstr("which has room for one of 48"));
}

TEST(ModelFit, RanksThatShareAHeadHoldACopyEach) {
  TopologyOptions options = On("1GiB", "gemma3");  // one head of keys and values
  const uint64_t alone = MustFit(options).held_bytes_per_sequence;
  options.engine.tensor_parallel = 2;
  EXPECT_EQ(MustFit(options).held_bytes_per_sequence, 2 * alone);
}

TEST(ModelFit, SaysWhyAModelDoesNotStart) {
  TopologyOptions options = On("1MiB", "llama");
  options.engine.kv_cache_bytes = 16 * kMib;
  const ModelFit fit = MustFit(options);
  EXPECT_THAT(fit.refusal, HasSubstr("2.0 MiB of memory is free"));
  EXPECT_EQ(fit.sequences, 0u);
  const std::string picture = Drawn(options);
  EXPECT_THAT(picture, HasSubstr("warning    '"));
  EXPECT_THAT(picture, Not(HasSubstr("room ")));
  EXPECT_EQ(*ToJson(fit).Find("refusal"), Json(fit.refusal));
}

// Two engines on each of two nodes, which read one copy there.
TEST(ModelFit, SharesMemoryAmongEngines) {
  TopologyOptions options = On("1GiB", "llama");
  options.engine.max_model_len = 320;
  options.engine.max_num_seqs = 100'000;
  const ModelFit alone = MustFit(options);
  options.replicas = 4;
  options.engine.share_weights = "on";
  const ModelFit each = MustFit(options);
  EXPECT_EQ(each.weight_bytes, alone.weight_bytes);
  EXPECT_EQ(each.weight_copies, 2);
  EXPECT_NEAR(static_cast<double>(each.cache_bytes), static_cast<double>(alone.cache_bytes) / 4,
              static_cast<double>(alone.cache_bytes) / 40);
  EXPECT_THAT(Drawn(options), HasSubstr("engines    4, with 2 copies of the weights, shared"));
  EXPECT_THAT(Drawn(options), HasSubstr("in each engine"));
  EXPECT_EQ(*ToJson(each).Find("replicas"), Json(4));
  options.engine.share_weights = "off";
  EXPECT_EQ(MustFit(options).weight_copies, 4);
  options.engine.kv_cache_bytes = 600 * kMib;
  EXPECT_THAT(MustFit(options).refusal, HasSubstr("--data-parallel-size 4: "));
  options.replicas = 2;
  EXPECT_EQ(MustFit(options).refusal, "");
}

TEST(ModelFit, RefusesTheModelsThatAnEngineRefuses) {
  TopologyOptions options = On("1GiB", "llama");
  options.engine.max_model_len = 1 << 20;
  EXPECT_THAT(Examine(options).error().message, HasSubstr("--max-model-len 1048576 exceeds"));
  options.engine.model = "preset:nothing";
  EXPECT_THAT(Examine(options).error().message, HasSubstr("no preset 'nothing'"));
}

TEST(ModelFit, ComputesNoMoreTextsThanAStepOfAnEncoder) {
  TopologyOptions options = On("1GiB", "");
  options.engine.model = StrCat(tests::TestData(), "/embedders/bert-mean");
  options.engine.max_num_batched_tokens = 1024;
  EXPECT_EQ(MustFit(options).sequences, 2u) << "of 512 tokens";
  options.engine.max_num_batched_tokens = 100;
  EXPECT_EQ(MustFit(options).sequence_tokens, 100u);
}

// The layers of a stage share one place of the cache; each stage has its own.
TEST(ModelFit, CountsAnEncodersCacheOnceForEachStage) {
  TopologyOptions options = On("1GiB", "");
  options.engine.model = StrCat(tests::TestData(), "/embedders/bert-mean");
  const ModelFit whole = MustFit(options);
  options.engine.pipeline_parallel = 2;
  const ModelFit staged = MustFit(options);
  EXPECT_EQ(staged.kv_bytes_per_token, 2 * whole.kv_bytes_per_token);
  EXPECT_EQ(staged.kv_bytes_per_sequence, staged.held_bytes_per_sequence);
  EXPECT_EQ(whole.kv_bytes_per_sequence, whole.held_bytes_per_sequence);
}

// The memory of an engine with the same settings.
TEST(ModelFit, IsTheMemoryThatAnEngineHolds) {
  SetLogLevel(LogLevel::kError);
  setenv("OMP_NUM_THREADS", "2", 1);
  for (const char* model :
       {"llama", "gemma3", "deepseekv2", "qwen3.5-text", "llama4", "falconh1"}) {
    SCOPED_TRACE(model);
    TopologyOptions options = On("1GiB", model);
    options.engine.threads_bind = "nobind";
    options.engine.tensor_parallel = 2;
    options.engine.kv_cache_bytes = 2 * kMib;
    options.engine.max_model_len = 256;
    options.engine.max_num_seqs = 8;
    if (const char* isa = std::getenv("PINION_TEST_ISA")) options.engine.isa = isa;
    const ModelFit fit = MustFit(options);
    const auto started = StartModel(options.engine);
    ASSERT_TRUE(started) << started.error().message;
    const EngineInfo& info = started->info;
    EXPECT_EQ(fit.weight_bytes, info.weight_bytes);
    EXPECT_EQ(fit.cache_bytes, info.kv_bytes + info.state_bytes);
    EXPECT_EQ(fit.longest_tokens, info.max_model_len);
    EXPECT_EQ(fit.sequences,
              std::min({info.kv_tokens / info.max_model_len, size_t{8}, info.states}));
  }
  unsetenv("OMP_NUM_THREADS");
}

}  // namespace
}  // namespace pinion::harness
