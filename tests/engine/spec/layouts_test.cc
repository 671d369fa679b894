// The same model's config.json in the layouts that transformers has written over the years.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/spec/attention_spec.h"
#include "engine/spec/rope.h"
#include "tests/engine/spec/configs.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json Without(Json config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) config.Set(key, nullptr);
  return config;
}

std::vector<MixerKind> Mixers(const DecoderSpec& spec) {
  std::vector<MixerKind> mixers;
  for (const LayerSpec& layer : spec.layer_specs) mixers.push_back(layer.mixer);
  return mixers;
}

std::vector<float> RopeOf(const Json& config) {
  const auto spec = ReadSpec(config);
  EXPECT_TRUE(spec) << spec.error().message;
  return spec ? RopeFrequencies(spec->ropes.at(0), spec->max_positions) : std::vector<float>();
}

// 5.24 has one name for all recurrent mixers.
TEST(Layouts, NameTheMixersOfHybridsInTwoWays) {
  EXPECT_EQ(Mixers(ReadSpec(With("granite4", "layer_types",
                                 R"(["linear_attention", "linear_attention", "full_attention",
                                     "linear_attention"])"))
                       .value()),
            Mixers(SpecOf("granite4")));
  const Json nemotron = With("nemotronh", "layers_block_type",
                             R"(["linear_attention", "mlp", "linear_attention", "full_attention",
                                 "mlp", "linear_attention", "mlp"])");
  EXPECT_EQ(Mixers(ReadSpec(nemotron).value()), Mixers(SpecOf("nemotronh")));
  EXPECT_THAT(ErrorOf(With("nemotronh", "layers_block_type", R"(["linear"])")),
              HasSubstr("'layers_block_type' holds \"linear\""));
}

TEST(Layouts, KimiLinearsNumbersStandInAnObjectOrBesideTheOthers) {
  const DecoderSpec published = SpecOf("kimi-linear");
  Json config = Without(Config("kimi-linear"), {"linear_attn_config", "first_k_dense_replace"});
  config.Set("layer_types", Json::Parse(R"(["linear_attention", "linear_attention",
                                            "linear_attention", "full_attention"])")
                                .value());
  config.Set("mlp_layer_types", Json::Parse(R"(["dense", "sparse", "sparse", "sparse"])").value());
  config.Set("linear_num_heads", published.delta.key_heads);
  config.Set("linear_head_dim", published.delta.key_dim);
  config.Set("linear_conv_kernel_dim", published.delta.conv_width);
  const DecoderSpec spec = ReadSpec(config).value();
  EXPECT_EQ(Mixers(spec), Mixers(published));
  EXPECT_EQ(spec.delta.key_heads, published.delta.key_heads);
  EXPECT_EQ(spec.delta.key_dim, published.delta.key_dim);
  EXPECT_EQ(spec.delta.conv_width, published.delta.conv_width);
  config.Set("layer_types", Json::Parse(R"(["linear_attention"])").value());
  EXPECT_THAT(ErrorOf(config), HasSubstr("without 'linear_attn_config', 'layer_types' must be"));
}

// 5.24 writes what differs from layer to layer instead of global_head_dim and the like.
TEST(Layouts, Gemma4sGlobalHeadsStandInFieldsOrLayerByLayer) {
  const DecoderSpec published = SpecOf("gemma4-dense");
  Json config = Without(Config("gemma4-dense"), {"global_head_dim", "num_global_key_value_heads"});
  config.Set("per_layer_config",
             Json::Parse(R"({"2": {"head_dim": 32, "num_key_value_heads": 1}})").value());
  const DecoderSpec spec = ReadSpec(config).value();
  for (size_t layer = 0; layer < 3; ++layer)
    EXPECT_EQ(LayerHeads(spec, layer), LayerHeads(published, layer)) << layer;
  EXPECT_EQ(RopeFrequencies(spec.ropes.at(0), 64), RopeFrequencies(published.ropes.at(0), 64));
}

TEST(Layouts, Gemma4sLayersDifferInTheirHeadsAlone) {
  for (const auto& [layers, says] :
       {std::pair{R"({"2": {"intermediate_size": 8}})", "a 'intermediate_size' of its own"},
        {R"({"3": {"head_dim": 32}})", "names layer '3', want layers from 0 to 2"},
        {R"({"first": {"head_dim": 32}})", "names layer 'first'"},
        {R"({"2": {"head_dim": 4}})", "'head_dim' is 4"},
        {R"({"0": {"head_dim": 32}})", "layer 1 heads of 16, want 32"},
        {R"({"0": {"head_dim": 32}, "1": {"head_dim": 32}})", "with a window heads of 32"},
        {R"([])", "'per_layer_config' is an array"}})
    EXPECT_THAT(ErrorOf(With("gemma4-dense", "per_layer_config", layers)), HasSubstr(says));
  EXPECT_THAT(ErrorOf(With("llama", "per_layer_config", R"({"0": {"head_dim": 32}})")),
              HasSubstr("'per_layer_config'"));
  EXPECT_EQ(ErrorOf(With("llama", "per_layer_config", "{}")), "no error");
}

// As transformers does: beside the other parameters, before them, or the longest sequence.
TEST(Layouts, TheLengthInTrainingMayStandOutsideOfTheRope) {
  const std::string llama3 =
      R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4)";
  const auto with = [](const std::string& rope, int outside) {
    Json config = With("llama2", "rope_scaling", rope);
    if (outside > 0) config.Set("original_max_position_embeddings", outside);
    return RopeOf(config);
  };
  const std::string yarn = R"({"rope_type": "yarn", "factor": 8)";
  for (const std::string& rope : {llama3, yarn}) {
    const auto inside = [&](int length) {
      return StrCat(rope, R"(, "original_max_position_embeddings": )", length, "}");
    };
    EXPECT_EQ(with(rope + "}", 64), with(inside(64), 0));
    EXPECT_EQ(with(inside(256), 64), with(inside(64), 0));
    EXPECT_NE(with(inside(256), 0), with(inside(64), 0));
    const int longest = SpecOf("llama2").max_positions;
    EXPECT_EQ(with(rope + "}", 0), with(inside(longest), 0));
  }
}

TEST(Layouts, AStatedFactorOfLongRopeComesBeforeTheRatioOfTheLengths) {
  Json config = Config("phi3-longrope");
  const double plain = ReadSpec(config)->ropes[0].scale;
  const char* key = config.Find("rope_scaling") ? "rope_scaling" : "rope_parameters";
  Json rope = *config.Find(key);
  rope.Set("factor", 4.0);
  config.Set(key, rope);
  config.Set("original_max_position_embeddings", 4);
  // sqrt(1 + ln 4 / ln 4), as arXiv:2402.13753 scales.
  EXPECT_NEAR(ReadSpec(config)->ropes[0].scale, std::sqrt(2.0), 1e-12);
  EXPECT_GT(plain, std::sqrt(2.0));
}

// hidden_size / num_attention_heads is not the size of a head of latent attention.
TEST(Layouts, LatentAttentionNeedsNoWholeHeads) {
  Json config = Without(With("deepseekv3", "hidden_size", "100"), {"head_dim"});
  config.Set("num_attention_heads", 3);
  config.Set("num_key_value_heads", 3);
  EXPECT_EQ(ErrorOf(config), "no error");
}

TEST(Layouts, WithoutAChunkSizeNoLayerOfLlama4HasChunks) {
  const DecoderSpec spec = ReadSpec(With("llama4", "attention_chunk_size", "null")).value();
  for (const LayerSpec& layer : spec.layer_specs) EXPECT_EQ(layer.chunk, 0);
}

TEST(Layouts, WithoutAWindowExaone4sPatternIsZero) {
  Json config = Without(With("exaone4", "sliding_window_pattern", "0"), {"sliding_window"});
  config.Set("layer_types", nullptr);
  const DecoderSpec spec = ReadSpec(config).value();
  for (const LayerSpec& layer : spec.layer_specs) {
    EXPECT_EQ(layer.window, 0);
    EXPECT_EQ(layer.rope, 0);
  }
}

TEST(Layouts, FalconsMambaHeadsDivideTheStatedWidth) {
  const DecoderSpec stated = SpecOf("falconh1");
  for (const char* head : {"null", R"("auto")"}) {
    Json config = With("falconh1", "mamba_d_head", head);
    config.Set("mamba_d_ssm", stated.mamba.inner());
    EXPECT_EQ(ReadSpec(config)->mamba.head_dim, stated.mamba.head_dim) << head;
  }
}

// transformers has nothing to tie in these.
TEST(Layouts, SomeHeadsAreNeverTied) {
  for (const char* model : {"nemotronh", "kimi-linear"})
    EXPECT_FALSE(ReadSpec(With(model, "tie_word_embeddings", "true"))->tied_head) << model;
  EXPECT_TRUE(ReadSpec(With("llama", "tie_word_embeddings", "true"))->tied_head);
}

TEST(Layouts, AStatedWaveOfSeveralAxesIsPlainOnText) {
  const Json rope = Json::Parse(R"({"rope_type": "default", "mrope_section": [2, 1, 1]})").value();
  Json config = Without(Config("qwen3.5-text"), {"rope_parameters"});
  config.Set("rope_scaling", rope);
  EXPECT_EQ(ErrorOf(config), "no error");
}

// The defaults of the classes of transformers 5.24.
TEST(Layouts, AbsentRopeParametersAreTheArchitectures) {
  const Json none = Without(Config("gptoss"), {"rope_scaling", "rope_parameters"});
  const RopeSpec rope = ReadSpec(none)->ropes.at(0);
  EXPECT_EQ(rope.type, "yarn");
  EXPECT_EQ(rope.factor, 32);
  EXPECT_FALSE(rope.truncate);
  const Json gemma = Without(Config("gemma4-dense"), {"rope_parameters"});
  EXPECT_EQ(ReadSpec(gemma)->ropes.at(0).part, 0.25);
  EXPECT_EQ(ReadSpec(gemma)->ropes.at(0).theta, 1e6);
  EXPECT_EQ(ReadSpec(gemma)->ropes.at(1).theta, 1e4);
  const DecoderSpec ministral =
      ReadSpec(Without(Config("ministral3"), {"rope_scaling", "rope_parameters"})).value();
  EXPECT_EQ(ministral.ropes.at(0).theta, 1e6);
  EXPECT_EQ(ministral.query_scale.length, 16384);
}

TEST(Layouts, MixturesMayHaveAWindow) {
  EXPECT_EQ(ReadSpec(With("mixtral", "sliding_window", "16"))->layer_specs[0].window, 16);
  Json config = With("qwen3moe", "sliding_window", "16");
  EXPECT_EQ(ReadSpec(config)->layer_specs[0].window, 0);
  config.Set("use_sliding_window", true);
  EXPECT_EQ(ReadSpec(config)->layer_specs[0].window, 16);
}

}  // namespace
}  // namespace pinion
