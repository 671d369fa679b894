#include "engine/decoder/cost.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/checkpoint/preset.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

using kernels::Dtype;

DecoderSpec Preset(const std::string& name) { return ReadSpec(PresetConfig(name).value()).value(); }

// Llama-3.2-1B: 16 layers of hidden 2048; 32 query and 8 KV heads of 64; MLP 8192; 128,256 words.
// No dimension needs padding.
constexpr uint64_t kQkv = 3072 * 2048, kO = 2048 * 2048, kMlp = 3 * 8192 * 2048;
constexpr uint64_t kLayers = 16, kHead = 128256ull * 2048;

TEST(Cost, WeightsOfABigModelAsCountedByHand) {
  const CostModel cost(Preset("llama-3.2-1b"), Dtype::kBf16, 1);
  const uint64_t norms = (2 * kLayers + 1) * 2048 * 4;  // float32
  const uint64_t body = kLayers * 2 * (kQkv + kO + kMlp) + norms;
  EXPECT_EQ(cost.Weights(false).weight_bytes, body);
  EXPECT_EQ(cost.Weights(true).weight_bytes, body + 2 * kHead);
  EXPECT_EQ(cost.Weights(true).weight_bytes, 2'471'763'968u);
  EXPECT_EQ(cost.Weights(true).flops, 0u);
}

TEST(Cost, OneDecodedTokenAsCountedByHand) {
  const StepCost cost = CostModel(Preset("llama-3.2-1b"), Dtype::kBf16, 1).Rows(999, 1, 1);
  EXPECT_EQ(cost.kv_bytes, 1000u * 32 * 1024);  // 16 layers x K, V x 8 heads x 64 x 2 bytes
  const uint64_t linear = 2 * kLayers * (kQkv + kO + kMlp) + 2 * kHead;
  const uint64_t attention = 1000 * kLayers * 32 * 64 * 4;
  EXPECT_EQ(cost.flops, linear + attention);
  EXPECT_EQ(cost.weight_bytes, 0u);
}

// A prompt of 512 in one step: 512 x 513 / 2 pairs of tokens, one row of logits.
TEST(Cost, APromptAsCountedByHand) {
  const StepCost cost = CostModel(Preset("llama-3.2-1b"), Dtype::kBf16, 1).Rows(0, 512, 1);
  EXPECT_EQ(cost.kv_bytes, 512u * 32 * 1024);
  EXPECT_EQ(cost.flops, 512 * 2 * kLayers * (kQkv + kO + kMlp) + 2 * kHead +
                            131'328ull * kLayers * 32 * 64 * 4);
}

TEST(Cost, ChunksAddUpToTheWholePrompt) {
  const CostModel model(Preset("qwen2.5-0.5b"), Dtype::kBf16, 1);
  StepCost chunks = model.Rows(0, 100, 0);
  chunks += model.Rows(100, 28, 0);
  chunks += model.Rows(128, 72, 1);
  EXPECT_EQ(chunks.flops, model.Rows(0, 200, 1).flops);
  EXPECT_EQ(chunks.kv_bytes, model.Rows(0, 100, 0).kv_bytes + model.Rows(0, 128, 0).kv_bytes +
                                 model.Rows(0, 200, 0).kv_bytes);
}

// Qwen3-30B-A3B: a token passes through 8 of 128 experts of 768; the weights of those that a step
// chose are counted by the decoder.
TEST(Cost, ATokenPassesThroughItsOwnExperts) {
  const CostModel cost(Preset("qwen3-30b-a3b@3"), Dtype::kBf16, 1);
  constexpr uint64_t kAttention = 2048 * (4096 + 2 * 512) + 4096 * 2048;
  constexpr uint64_t kExperts = 128 * 2048 + 8 * 3 * 768 * 2048;
  EXPECT_EQ(cost.Rows(0, 1, 0).flops, 3 * (2 * (kAttention + kExperts) + 32 * 128 * 4));
  constexpr uint64_t kNorms = (2 * 2048 + 2 * 128) * 4, kRouter = 128 * 2048 * 4;
  EXPECT_EQ(cost.Weights(false).weight_bytes, 3 * (2 * kAttention + kNorms + kRouter) + 2048 * 4);
}

// The same model: one row touches 8 of 128 experts in each of 3 layers, two rows 8 + 8 * 120 / 128
// in expectation, and very many all of them.
TEST(Cost, RowsShareSomeOfTheirExperts) {
  const CostModel cost(Preset("qwen3-30b-a3b@3"), Dtype::kBf16, 1);
  constexpr uint64_t kExpert = 3 * 768 * 2048 * 2;
  EXPECT_EQ(cost.ExpectedExperts(1).weight_bytes, 3 * 8 * kExpert);
  EXPECT_EQ(cost.ExpectedExperts(2).weight_bytes, 3 * (8 * kExpert + 15 * kExpert / 2));
  EXPECT_EQ(cost.ExpectedExperts(100'000).weight_bytes, 3 * 128 * kExpert);
  EXPECT_EQ(cost.LeastExperts().weight_bytes, 3 * 8 * kExpert);
  EXPECT_EQ(cost.ExpectedExperts(1).flops, 0u);  // they are the rows'
  EXPECT_EQ(CostModel(Preset("opt-125m"), Dtype::kF16, 1).ExpectedExperts(9).bytes(), 0u);
}

// DeepSeek-V2-Lite: 512 + 64 elements are cached of a token, for all 16 heads.
TEST(Cost, LatentAttentionReadsOneLatentAToken) {
  const CostModel cost(Preset("deepseek-v2-lite@2"), Dtype::kBf16, 1);
  EXPECT_EQ(cost.Rows(99, 1, 0).kv_bytes, 100u * 2 * 576 * 2);
  constexpr uint64_t kQueries = 16 * 192 * 2048, kLatent = 576 * 2048;
  constexpr uint64_t kUp = 16 * 512 * (128 + 128), kO = 2048 * 2048;
  constexpr uint64_t kDense = 3 * 10944 * 2048, kMoe = 64 * 2048 + 3 * 2048 * (6 * 1408 + 2816);
  EXPECT_EQ(cost.Rows(99, 1, 0).flops, 2 * (2 * (kQueries + kLatent + kUp + kO) + kDense + kMoe) +
                                           2 * 100 * 16 * 2 * (576 + 512));
}

// Eight bits of KV: half the bytes, and a scale of two for each key, value or latent.
TEST(Cost, ACacheOfBytesIsReadWithItsScales) {
  const auto cost = [](const char* preset, kernels::KvDtype kv) {
    return CostModel(Preset(preset), Dtype::kBf16, kv, 1).Rows(99, 1, 0).kv_bytes;
  };
  EXPECT_EQ(cost("llama-3.2-1b", kernels::KvDtype::kBf16), 100u * 16 * 8 * 2 * 64 * 2);
  for (const auto kv : {kernels::KvDtype::kI8, kernels::KvDtype::kE5m2, kernels::KvDtype::kE4m3}) {
    EXPECT_EQ(cost("llama-3.2-1b", kv), 100u * 16 * 8 * 2 * (64 + 2));
    EXPECT_EQ(cost("deepseek-v2-lite@2", kv), 100u * 2 * (576 + 2));
  }
  EXPECT_EQ(cost("llama-3.2-1b", kernels::KvDtype::kF32), 100u * 16 * 8 * 2 * 64 * 4);
}

// Gemma-3-1B: 22 of 26 layers see 512 tokens, the others everything; 1 KV head and 4 heads of 256.
TEST(Cost, AWindowBoundsTokensReadAndSeen) {
  const CostModel cost(Preset("gemma-3-1b"), Dtype::kBf16, 1);
  constexpr uint64_t kToken = 2 * 256 * 2, kPair = 2 * 2 * 4 * 256;
  const StepCost decoded = cost.Rows(999, 1, 0), prompt = cost.Rows(0, 1000, 0);
  EXPECT_EQ(decoded.kv_bytes, (22 * 512 + 4 * 1000) * kToken);
  EXPECT_EQ(prompt.kv_bytes, 26 * 1000 * kToken);
  const uint64_t linear = cost.Rows(0, 1, 0).flops - 26 * kPair;
  EXPECT_EQ(decoded.flops, linear + (22 * 512 + 4 * 1000) * kPair);
  const uint64_t windowed = 512 * 513 / 2 + (1000 - 512) * 512, full = 1000 * 1001 / 2;
  EXPECT_EQ(prompt.flops, 1000 * linear + (22 * windowed + 4 * full) * kPair);
}

// Three of four layers of Llama 4 attend within chunks of 64 tokens: 4 heads and 2 KV heads of 32.
TEST(Cost, AChunkBoundsTokensReadAndSeen) {
  const auto config = Json::ParseFile(tests::TestData() + "/models/llama4/config.json").value();
  const CostModel cost(ReadSpec(config).value(), Dtype::kBf16, 1);
  constexpr uint64_t kToken = 2 * 2 * 32 * 2, kPair = 2 * 2 * 4 * 32;
  const StepCost decoded = cost.Rows(64 + 9, 1, 0), prompt = cost.Rows(60, 100, 0);
  EXPECT_EQ(decoded.kv_bytes, (3 * 10 + 74) * kToken);
  EXPECT_EQ(prompt.kv_bytes, 4 * 160 * kToken);
  const uint64_t linear = cost.Rows(0, 1, 0).flops - 4 * kPair;
  EXPECT_EQ(decoded.flops, linear + (3 * 10 + 74) * kPair);
  // Positions 60 to 63 of the first chunk, all of the second, 32 of the third.
  const uint64_t chunked = (61 + 62 + 63 + 64) + 64 * 65 / 2 + 32 * 33 / 2;
  const uint64_t full = 160 * 161 / 2 - 60 * 61 / 2;
  EXPECT_EQ(prompt.flops, 100 * linear + (3 * chunked + full) * kPair);
}

// Three layers; a token chooses 16 of those before it, by 16 heads of 32 and a key that is cached
// beside a latent of 48; 4 heads.
TEST(Cost, AnIndexerReadsItsKeysAndTheChosenTokens) {
  const auto config =
      Json::ParseFile(tests::TestData() + "/models/deepseekv3.2/config.json").value();
  const CostModel cost(ReadSpec(config).value(), Dtype::kBf16, 1);
  constexpr uint64_t kLatent = 48 * 2, kKey = 32 * 2;
  EXPECT_EQ(cost.Rows(15, 1, 0).kv_bytes, 3 * 16 * kLatent) << "all that there are";
  EXPECT_EQ(cost.Rows(99, 1, 0).kv_bytes, 3 * (16 * kLatent + 100 * kKey));
  EXPECT_EQ(cost.Rows(0, 100, 0).kv_bytes, 3 * 100 * (kLatent + kKey));
  constexpr uint64_t kPair = 2 * 4 * (48 + 32), kCompared = 2 * 16 * 32;
  const uint64_t linear = cost.Rows(0, 1, 0).flops - 3 * kPair;
  EXPECT_EQ(cost.Rows(99, 1, 0).flops, linear + 3 * (16 * kPair + 100 * kCompared));
  const uint64_t seen = 16 * 17 / 2 + 4 * 16, compared = 17 + 18 + 19 + 20;
  EXPECT_EQ(cost.Rows(0, 20, 0).flops, 20 * linear + 3 * (seen * kPair + compared * kCompared));
}

// Five layers of hidden 64, two with attention: 4 heads and 2 KV heads of 16; the others convolve
// three tokens, of which a state holds two.
// Every pair of tokens at most as far apart as the window says, counted one by one.
TEST(Cost, EncodersSeeBothWays) {
  DecoderSpec spec = Preset("llama-3.2-1b");
  spec.bidirectional = true;
  for (const int window : {0, 1, 9, 40, 41}) {
    for (LayerSpec& layer : spec.layer_specs) layer.window = window;
    uint64_t pairs = 0;
    for (int i = 0; i < 40; ++i)
      for (int j = 0; j < 40; ++j) pairs += window == 0 || std::abs(i - j) < window ? 1 : 0;
    const StepCost cost = CostModel(spec, Dtype::kBf16, 1).Rows(0, 40, 0);
    EXPECT_EQ(cost.kv_bytes, 40u * 2 * 1024) << window << ": of one layer";
    EXPECT_EQ(cost.flops, 40 * 2 * kLayers * (kQkv + kO + kMlp) + pairs * kLayers * 32 * 64 * 4)
        << window;
  }
}

TEST(Cost, ShortConvolutionsReadTheirStateAlone) {
  const auto config = Json::ParseFile(tests::TestData() + "/models/lfm2/config.json").value();
  const CostModel cost(ReadSpec(config).value(), Dtype::kBf16, 1);
  constexpr uint64_t kTokens = 10, kState = 3 * 2 * 64 * 4;
  const StepCost decoded = cost.Rows(kTokens - 1, 1, 0);
  EXPECT_EQ(decoded.kv_bytes, 2 * kTokens * 2 * 2 * 16 * 2 + kState);
  EXPECT_EQ(cost.Rows(0, 1, 0).kv_bytes, 2u * 2 * 2 * 16 * 2) << "a sequence begins without state";
  constexpr uint64_t kAttention = 128 * 64 + 64 * 64, kConv = 3 * 64 * 64 + 64 * 64 + 3 * 64;
  constexpr uint64_t kPair = 2 * 4 * (16 + 16);
  EXPECT_EQ(decoded.flops,
            2 * (2 * kAttention + 3 * kConv + 5 * 3 * 64 * 144) + 2 * kTokens * kPair);
}

// Four layers of hidden 64, one with attention: 4 heads and 2 KV heads of 16; the others 8 heads
// with a state of 16 x 16, one group, a convolution over 4 tokens of 160 channels.
TEST(Cost, MambaReadsItsStateAlone) {
  const auto config = Json::ParseFile(tests::TestData() + "/models/bamba/config.json").value();
  const CostModel cost(ReadSpec(config).value(), Dtype::kBf16, 1);
  constexpr uint64_t kTokens = 10, kState = 3 * (3 * 160 + 8 * 16 * 16) * 4;
  const StepCost decoded = cost.Rows(kTokens - 1, 1, 0);
  EXPECT_EQ(decoded.kv_bytes, kTokens * 2 * 2 * 16 * 2 + kState);
  EXPECT_EQ(cost.Rows(0, 1, 0).kv_bytes, 2u * 2 * 16 * 2) << "a sequence begins without state";
  constexpr uint64_t kAttention = 128 * 64 + 64 * 64, kMlp = 3 * 64 * 96;
  constexpr uint64_t kMamba = (128 + 160 + 8) * 64 + 128 * 64 + 4 * 160;
  constexpr uint64_t kPair = 2 * 4 * (16 + 16), kUpdate = 5 * 8 * 16 * 16;
  EXPECT_EQ(decoded.flops,
            2 * (kAttention + 3 * kMamba + 4 * kMlp) + 3 * kUpdate + kTokens * kPair);
}

// Seven layers of hidden 64, each one part: three of Mamba-2 (two groups), three MLPs of 96 without
// gate, one attends.
TEST(Cost, LayersOfOnePartCostThatAlone) {
  const auto config = Json::ParseFile(tests::TestData() + "/models/nemotronh/config.json").value();
  const CostModel cost(ReadSpec(config).value(), Dtype::kBf16, 1);
  constexpr uint64_t kAttention = 128 * 64 + 64 * 64, kMlp = 2 * 64 * 96;
  constexpr uint64_t kMamba = (128 + 192 + 8) * 64 + 128 * 64 + 4 * 192;
  constexpr uint64_t kPair = 2 * 4 * (16 + 16), kUpdate = 5 * 8 * 16 * 16;
  EXPECT_EQ(cost.Rows(9, 1, 0).flops,
            2 * (kAttention + 3 * kMamba + 3 * kMlp) + 3 * kUpdate + 10 * kPair);
}

// Three layers of hidden 64, each with 4 heads and 2 KV heads of 16 beside 6 Mamba heads.
TEST(Cost, PartsSideBySideCostBoth) {
  const auto config = Json::ParseFile(tests::TestData() + "/models/falconh1/config.json").value();
  const CostModel cost(ReadSpec(config).value(), Dtype::kBf16, 1);
  constexpr uint64_t kAttention = 128 * 64 + 64 * 64, kMlp = 3 * 64 * 96;
  constexpr uint64_t kMamba = (96 + 128 + 6) * 64 + 96 * 64 + 4 * 128;
  constexpr uint64_t kPair = 2 * 4 * (16 + 16), kUpdate = 5 * 6 * 16 * 16;
  const StepCost decoded = cost.Rows(9, 1, 0);
  EXPECT_EQ(decoded.flops, 3 * (2 * (kAttention + kMamba + kMlp) + kUpdate + 10 * kPair));
  EXPECT_EQ(decoded.kv_bytes, 3u * (10 * 2 * 2 * 16 * 2 + (3 * 128 + 6 * 16 * 16) * 4));
}

// OPT-125M: plain MLP, as many KV heads as heads, biases.
TEST(Cost, APlainMlpMultipliesTwice) {
  const StepCost cost = CostModel(Preset("opt-125m"), Dtype::kF16, 1).Rows(0, 1, 0);
  const uint64_t layer = 4 * 768 * 768 + 2 * 3072 * 768;
  EXPECT_EQ(cost.flops, 12 * (2 * layer + 12 * 64 * 4));
  EXPECT_EQ(cost.kv_bytes, 12u * 2 * 12 * 64 * 2);
}

// Two ranks share Qwen's two KV heads; four must hold each twice. Arithmetic stays the same.
TEST(Cost, RanksThatHoldTheSameKvReadItEach) {
  const DecoderSpec spec = Preset("qwen2.5-0.5b");
  const StepCost one = CostModel(spec, Dtype::kBf16, 1).Rows(9, 1, 1);
  EXPECT_EQ(CostModel(spec, Dtype::kBf16, 2).Rows(9, 1, 1).kv_bytes, one.kv_bytes);
  const StepCost four = CostModel(spec, Dtype::kBf16, 4).Rows(9, 1, 1);
  EXPECT_EQ(four.kv_bytes, 2 * one.kv_bytes);
  EXPECT_EQ(four.flops, one.flops);
}

TEST(CostModel, CountsIntegerProductsApart) {
  const DecoderSpec spec = ReadSpec(PresetConfig("llama-3.2-1b").value()).value();
  FormatPlan formats(kernels::Dtype::kBf16);
  const StepCost plain = CostModel(spec, formats, 1).Rows(0, 1, 1);
  for (int layer = 0; layer < spec.layers; ++layer)
    for (const MatrixRole role :
         {MatrixRole::kQkv, MatrixRole::kO, MatrixRole::kMlpIn, MatrixRole::kDown})
      formats.Set(layer, role, {});
  const StepCost integers = CostModel(spec, formats, 1).Rows(0, 1, 1);
  EXPECT_EQ(plain.int8_ops, 0u);
  EXPECT_EQ(integers.flops + integers.int8_ops, plain.flops);
  const uint64_t head = 2 * uint64_t{128256} * 2048, attention = 16 * 2 * 32 * 128;
  EXPECT_EQ(integers.flops, head + attention) << "what is left: the head, q.k and p.v";
}

}  // namespace
}  // namespace pinion
