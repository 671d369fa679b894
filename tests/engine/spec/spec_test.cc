#include "engine/spec/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/base/strings.h"
#include "engine/spec/attention_spec.h"
#include "engine/spec/kv_tables.h"
#include "engine/spec/tensor_list.h"
#include "tests/engine/spec/configs.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Shape(const DecoderSpec& s) {
  return StrCat(s.architecture, " layers ", s.layers, " hidden ", s.hidden, " heads ", s.heads, "/",
                s.kv_heads, " x ", s.head_dim, " mlp ", s.intermediate, " vocabulary ",
                s.vocabulary, " positions ", s.max_positions, "+", s.position_offset, " biases ",
                s.qkv_bias, s.o_bias, s.mlp_bias, s.norm_bias, " tied ", s.tied_head, " rotary ",
                !s.ropes.empty(), " ", s.checkpoint_dtype);
}

TEST(Spec, ReadsEveryFixture) {
  EXPECT_EQ(Shape(SpecOf("llama")),
            "LlamaForCausalLM layers 3 hidden 64 heads 4/2 x 16 mlp 176 vocabulary 576 positions "
            "1024+0 biases 0000 tied 1 rotary 1 bfloat16");
  EXPECT_EQ(Shape(SpecOf("llama2")),
            "LlamaForCausalLM layers 2 hidden 96 heads 3/3 x 32 mlp 256 vocabulary 736 positions "
            "512+0 biases 0000 tied 0 rotary 1 bfloat16");
  EXPECT_EQ(Shape(SpecOf("qwen2")),
            "Qwen2ForCausalLM layers 3 hidden 112 heads 7/1 x 16 mlp 152 vocabulary 576 positions "
            "1024+0 biases 1000 tied 1 rotary 1 bfloat16");
  EXPECT_EQ(Shape(SpecOf("opt")),
            "OPTForCausalLM layers 2 hidden 64 heads 2/2 x 32 mlp 256 vocabulary 576 positions "
            "512+2 biases 1111 tied 1 rotary 0 bfloat16");
  EXPECT_EQ(Shape(SpecOf("tiny-trained")),
            "LlamaForCausalLM layers 4 hidden 128 heads 4/2 x 32 mlp 384 vocabulary 1024 positions "
            "2048+0 biases 0000 tied 1 rotary 1 bfloat16");
}

TEST(Spec, ReadsIds) {
  EXPECT_THAT(SpecOf("llama").eos_ids, ElementsAre(2));
  EXPECT_EQ(SpecOf("llama").bos_id, 0);
  EXPECT_EQ(SpecOf("qwen2").bos_id, std::nullopt);
  DecoderSpec spec = ReadSpec(With("llama", "eos_token_id", "[7, 9]")).value();
  ASSERT_TRUE(JoinEosIds(Json::Parse(R"({"eos_token_id": [9, 11]})").value(), spec));
  EXPECT_THAT(spec.eos_ids, ElementsAre(7, 9, 11));
  EXPECT_THAT(ErrorOf(With("llama", "eos_token_id", "[-1]")), HasSubstr("eos_token_id"));
  EXPECT_THAT(ErrorOf(With("llama", "bos_token_id", "4294967296")), HasSubstr("bos_token_id"));
}

std::vector<int> Windows(const DecoderSpec& spec) {
  std::vector<int> windows;
  for (const LayerSpec& layer : spec.layer_specs) windows.push_back(layer.window);
  return windows;
}

TEST(Spec, ReadsWindowsOfEachFamily) {
  EXPECT_THAT(Windows(SpecOf("mistral")), ElementsAre(16, 16));
  EXPECT_THAT(Windows(SpecOf("gemma2")), ElementsAre(16, 0, 16, 0));
  EXPECT_THAT(Windows(ReadSpec(With("gemma2", "layer_types", "null")).value()),
              ElementsAre(16, 0, 16, 0));
  EXPECT_THAT(Windows(SpecOf("gemma3")), ElementsAre(16, 16, 16, 16, 16, 0));
  Json config = With("gemma3", "layer_types", "null");
  config.Set("sliding_window_pattern", 2);
  EXPECT_THAT(Windows(ReadSpec(config).value()), ElementsAre(16, 0, 16, 0, 16, 0));
  EXPECT_THAT(Windows(SpecOf("qwen3")), ElementsAre(0, 0));
  config = With("qwen3", "use_sliding_window", "true");
  config.Set("sliding_window", 32);
  config.Set("max_window_layers", 1);
  config.Set("layer_types", nullptr);
  EXPECT_THAT(Windows(ReadSpec(config).value()),
              ElementsAre(0, 32));  // The architecture's own rule, which the fixtures leave out.
  config = With("exaone4", "layer_types", "null");
  config.Set("sliding_window_pattern", "LG");
  EXPECT_THAT(Windows(ReadSpec(config).value()), ElementsAre(16, 0, 16, 0));
  EXPECT_THAT(Windows(ReadSpec(With("cohere2", "sliding_window_pattern", "2")).value()),
              ElementsAre(16, 0, 16, 0));
  EXPECT_THAT(Windows(ReadSpec(With("olmo3", "layer_types", "null")).value()),
              ElementsAre(16, 16, 16, 0));
}

// The layers with experts, by each family's fields.
TEST(Spec, PlacesExperts) {
  const auto kinds = [](const DecoderSpec& spec) {
    std::string kinds;
    for (const LayerSpec& layer : spec.layer_specs)
      kinds += layer.mlp == MlpKind::kExperts ? 'E' : 'd';
    return kinds;
  };
  EXPECT_EQ(kinds(SpecOf("ernie4.5-moe")), "dEE");
  EXPECT_EQ(kinds(ReadSpec(With("ernie4.5-moe", "moe_layer_end_index", "1")).value()), "dEd");
  EXPECT_EQ(kinds(ReadSpec(With("ernie4.5-moe", "moe_layer_interval", "2")).value()), "dEd");
  EXPECT_EQ(kinds(ReadSpec(With("ernie4.5-moe", "moe_layer_end_index", "-1")).value()), "dEE");
  EXPECT_EQ(kinds(SpecOf("glm4-moe")), "dE");
  EXPECT_EQ(kinds(SpecOf("glm4-moe-lite")), "dEE");
  const Json listed = With("glm4-moe-lite", "mlp_layer_types", R"(["sparse", "dense", "sparse"])");
  EXPECT_EQ(kinds(ReadSpec(listed).value()), "EdE");
  EXPECT_EQ(kinds(SpecOf("minimax-m2")), "EEE");
}

TEST(Spec, GivesGlobalLayersOfGemma4HeadsAndARopeOfTheirOwn) {
  const DecoderSpec spec = SpecOf("gemma4-dense");
  EXPECT_EQ(LayerHeads(spec, 0), (HeadShape{4, 2, 16}));
  EXPECT_EQ(LayerHeads(spec, 2), (HeadShape{4, 1, 32}));
  EXPECT_FALSE(spec.layer_specs[0].keys_as_values);
  EXPECT_TRUE(spec.layer_specs[2].keys_as_values);
  // Two layers of two heads of 16, one of one head of 32: keys and values of 2 bytes.
  EXPECT_EQ(KvBytesPerToken(spec, kernels::KvDtype::kBf16), (2u * 2 * 16 + 32) * 2 * 2);
  ASSERT_EQ(spec.ropes.size(), 2u);
  const std::vector<float> waves = RopeFrequencies(spec.ropes[0], 2048);
  ASSERT_EQ(waves.size(), 16u);
  for (size_t i = 0; i < waves.size(); ++i)
    EXPECT_FLOAT_EQ(waves[i], i < 4 ? std::pow(1e6, -2.0 * static_cast<double>(i) / 32) : 0) << i;
  EXPECT_EQ(RopeFrequencies(spec.ropes[1], 2048).size(), 8u);
  // The heads of global layers are fewer only if they serve as values too.
  const DecoderSpec split = ReadSpec(With("gemma4-dense", "attention_k_eq_v", "false")).value();
  EXPECT_EQ(LayerHeads(split, 2), (HeadShape{4, 2, 32}));
}

TEST(Spec, LetsLastLayersOfGemma4ESeeTheLastKeysAndValuesOfTheirType) {
  const DecoderSpec spec = SpecOf("gemma4-e");
  std::vector<int> from, widths;
  std::vector<size_t> places;
  for (size_t layer = 0; layer < spec.layer_specs.size(); ++layer) {
    from.push_back(spec.layer_specs[layer].kv_from);
    widths.push_back(static_cast<int>(MlpWidth(spec, layer)));
    places.push_back(KvPlaceOf(spec, layer).layer);
  }
  EXPECT_EQ(from, (std::vector<int>{-1, -1, -1, 1, 1, 2}));
  EXPECT_EQ(widths, (std::vector<int>{80, 80, 80, 160, 160, 160}));
  EXPECT_EQ(places, (std::vector<size_t>{0, 1, 2, 1, 1, 2}));
  EXPECT_EQ(KvLayers(spec), 3u);
  // Two layers of one head of 16, one of one head of 32: keys and values of 2 bytes.
  EXPECT_EQ(KvBytesPerToken(spec, kernels::KvDtype::kBf16), (2u * 16 + 32) * 2 * 2);
  EXPECT_EQ(spec.layer_inputs.size, 16);
  EXPECT_EQ(spec.layer_inputs.vocabulary, 736);
}

// The quantile of 0.95 of a standard normal variable is 1.644854 (Abramowitz and Stegun, 26.2).
TEST(Spec, CutsGatesOfGemma3nByTheirDeviation) {
  const DecoderSpec spec = SpecOf("gemma3n");
  EXPECT_NEAR(spec.layer_specs[0].gate_cut.value(), 1.644854, 1e-5);
  EXPECT_FALSE(spec.layer_specs[2].gate_cut);
  EXPECT_EQ(spec.alt_up.streams, 4);
  EXPECT_EQ(spec.laurel_rank, 8);
  const DecoderSpec half =
      ReadSpec(With("gemma3n", "activation_sparsity_pattern", "[0.5, 0.9, 0, 0, 0, 0]")).value();
  EXPECT_NEAR(half.layer_specs[0].gate_cut.value(), 0, 1e-6) << "half of them";
  EXPECT_NEAR(half.layer_specs[1].gate_cut.value(), 1.281552, 1e-5);
  // As transformers 4 has it, one width for all layers, and ten sparse ones of a deeper model.
  Json old = With("gemma3n", "activation_sparsity_pattern", "null");
  old.Set("intermediate_size", 80);
  EXPECT_FALSE(ReadSpec(old).value().layer_specs[0].gate_cut);
  const DecoderSpec mixed =
      ReadSpec(With("gemma3n", "intermediate_size", "[80, 80, 80, 160, 80, 80]")).value();
  EXPECT_EQ(mixed.intermediate, 160);
  EXPECT_EQ(MlpWidth(mixed, 0), 80u);
  EXPECT_EQ(MlpWidth(mixed, 3), 160u);
}

TEST(Spec, PutsExpertsOfGemma4BesideTheMlp) {
  const DecoderSpec spec = SpecOf("gemma4-moe");
  EXPECT_TRUE(spec.moe.apart);
  EXPECT_EQ(spec.moe.router.experts, 8);
  EXPECT_EQ(spec.moe.router.top_k, 2);
  EXPECT_TRUE(spec.moe.router.normalise);
  EXPECT_EQ(spec.moe.intermediate, 24);
  EXPECT_EQ(spec.moe.shared_intermediate, 80);
  for (const LayerSpec& layer : spec.layer_specs) EXPECT_EQ(layer.mlp, MlpKind::kExperts);
  EXPECT_FALSE(SpecOf("gemma4-dense").moe.apart);
}

// gemma-3-4b-it's config.json, but for what its vision tower reads.
TEST(Spec, ReadsTheLanguageModelInsideAWrapper) {
  const Json config = Json::Parse(R"({
    "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
    "eos_token_id": [1, 106], "torch_dtype": "bfloat16", "mm_tokens_per_image": 256,
    "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
      "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
      "sliding_window": 1024}, "vision_config": {"hidden_size": 1152}})")
                          .value();
  const DecoderSpec spec = ReadSpec(config).value();
  EXPECT_EQ(spec.wrapper, "Gemma3ForConditionalGeneration");
  EXPECT_EQ(Shape(spec),
            "Gemma3ForCausalLM layers 34 hidden 2560 heads 8/4 x 256 mlp 10240 vocabulary 262208 "
            "positions 131072+0 biases 0000 tied 1 rotary 1 bfloat16");
  EXPECT_THAT(spec.eos_ids, ElementsAre(1, 106));
  EXPECT_EQ(ParameterCount(spec), 3'880'263'168u);
}

TEST(Spec, MambasNormMayNotComeBeforeItsGate) {
  Json config = With("falconh1", "mamba_rms_norm", "true");
  EXPECT_EQ(ReadSpec(config)->mamba.norm_runs, 1);
  config.Set("mamba_norm_before_gate", true);
  EXPECT_THAT(ErrorOf(config), HasSubstr("'mamba_norm_before_gate'"));
}

// As transformers 4 and 5 write it.
TEST(Spec, NemotronsLayersAreLettersOrNames) {
  const auto parts = [](const DecoderSpec& spec) {
    std::string letters;
    for (const LayerSpec& layer : spec.layer_specs)
      letters += HasMamba(layer.mixer)            ? 'M'
                 : Attends(layer.mixer)           ? '*'
                 : layer.mlp == MlpKind::kExperts ? 'E'
                                                  : '-';
    return letters;
  };
  EXPECT_EQ(parts(SpecOf("nemotronh")), "M-M*-M-");
  EXPECT_EQ(parts(SpecOf("nemotronh-moe")), "MEM*E");
  const Json named = With("nemotronh", "layers_block_type", R"(["mamba", "attention", "mlp"])");
  EXPECT_EQ(parts(*ReadSpec(named)), "M*-");
}

TEST(Spec, AcceptsNeutralValues) {
  for (const auto& [key, value] : {std::pair{"pretraining_tp", "2"},
                                   {"logits_scaling", "1.0"},
                                   {"partial_rotary_factor", "1"},
                                   {"hidden_act", R"("gelu")"},
                                   {"attention_multiplier", "null"},
                                   {"qk_norm", "false"},
                                   {"something_new", "3"},
                                   {"num_experts", "0"},
                                   {"quantization_config", "null"}})
    EXPECT_EQ(ErrorOf(With("llama", key, value)), "no error") << key;
  EXPECT_EQ(ErrorOf(With("qwen2", "sliding_window", "4096")), "no error");
}

TEST(Spec, BiasesFollowTheConfig) {
  Json config = With("llama", "attention_bias", "true");
  config.Set("mlp_bias", true);
  const DecoderSpec llama = ReadSpec(config).value();
  EXPECT_TRUE(llama.qkv_bias && llama.o_bias && llama.mlp_bias);
  const DecoderSpec opt = ReadSpec(With("opt", "enable_bias", "false")).value();
  EXPECT_FALSE(opt.qkv_bias || opt.o_bias || opt.mlp_bias);
  EXPECT_TRUE(opt.norm_bias);
}

TEST(Spec, CountsParametersAndKvBytes) {
  EXPECT_EQ(ParameterCount(SpecOf("llama")), 175552u);  // its index says so
  EXPECT_EQ(KvBytesPerToken(SpecOf("llama"), kernels::KvDtype::kF16), 2u * 3 * 2 * 16 * 2);
  EXPECT_EQ(KvBytesPerToken(SpecOf("llama"), kernels::KvDtype::kI8), 2u * 3 * 2 * (16 + 2));
}

TEST(TensorList, FillsInTheLayer) {
  EXPECT_EQ(LayerTensor("a.{}.b", 12), "a.12.b");
  EXPECT_EQ(LayerTensor("norm", 1), "norm");
}

}  // namespace
}  // namespace pinion
