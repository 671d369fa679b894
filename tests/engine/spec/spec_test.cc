#include "engine/spec/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/spec/architecture.h"
#include "engine/spec/attention_spec.h"
#include "engine/spec/kv_tables.h"
#include "engine/spec/tensor_list.h"
#include "tests/engine/spec/configs.h"

namespace pinion {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Of the first rope at the model's full length.
std::vector<float> Frequencies(const DecoderSpec& spec) {
  return RopeFrequencies(spec.ropes.at(0), spec.max_positions);
}

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

// Numbers from transformers' formulas, computed apart.
TEST(Spec, StretchesLlama3Frequencies) {
  const std::vector<float> want = {1.0f,          0.07940301f,   0.004700754f,  0.0009115831f,
                                   0.0001767767f, 3.428102e-05f, 6.647870e-06f, 1.289173e-06f};
  const auto got = Frequencies(SpecOf("llama"));
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-6 * want[i]) << i;
}

TEST(Spec, ReadsRopeOfBothLayouts) {
  const auto plain = Frequencies(SpecOf("llama2"));
  EXPECT_FLOAT_EQ(plain[1], std::pow(10000.0, -2.0 / 32));
  const Json v5 =
      Json::Parse(R"({"rope_theta": 10000.0, "rope_type": "linear", "factor": 4})").value();
  Json config = Config("llama2");
  config.Set("rope_parameters", v5);
  const DecoderSpec stretched = ReadSpec(config).value();
  EXPECT_FLOAT_EQ(Frequencies(stretched)[1], plain[1] / 4);
  EXPECT_EQ(stretched.max_positions, 2048);
  const auto v4 = With("llama2", "rope_scaling", R"({"type": "linear", "factor": 4.0})");
  EXPECT_EQ(Frequencies(ReadSpec(v4).value()), Frequencies(stretched));
}

// Hostile: within every bound by itself, but days of looking for tensors.
TEST(Spec, RefusesMoreExpertsThanAnyModelHas) {
  Json config = With("qwen3moe", "num_experts", "16384");
  config.Set("num_hidden_layers", 1024);
  EXPECT_THAT(ErrorOf(config), HasSubstr("1024 layers of 16384 experts, want at most 131072"));
}

TEST(Spec, RefusesRopeItCannotCompute) {
  EXPECT_THAT(
      ErrorOf(With("llama2", "rope_scaling", R"({"type": "cubic", "factor": 4.0})")),
      AllOf(HasSubstr("'cubic'"), HasSubstr("default, linear, dynamic, llama3, yarn, longrope")));
  EXPECT_THAT(ErrorOf(With("llama2", "rope_scaling", R"({"type": "linear"})")),
              HasSubstr("'factor'"));
  EXPECT_THAT(ErrorOf(With("llama2", "rope_scaling", R"({"type": "linear", "factor": 1e300})")),
              HasSubstr("'factor'"));
  EXPECT_THAT(ErrorOf(With("llama2", "rope_theta", "0")), HasSubstr("'rope_theta'"));
  EXPECT_THAT(ErrorOf(With("llama2", "rope_scaling", "[1]")), HasSubstr("rope parameters"));
  EXPECT_THAT(ErrorOf(With("llama2", "rope_scaling",
                           R"({"type": "llama3", "factor": 8, "low_freq_factor": 4,
                               "high_freq_factor": 3, "original_max_position_embeddings": 64})")),
              HasSubstr("'high_freq_factor'"));
  EXPECT_THAT(ErrorOf(With("llama2", "rope_scaling",
                           R"({"rope_type": "default", "partial_rotary_factor": 0.1})")),
              HasSubstr("partial_rotary_factor"));
}

// Llama 4 Scout: no wave is blended.
TEST(Spec, Llama3RopeMayBlendNothing) {
  const auto with = [](const char* factor) {
    return Frequencies(ReadSpec(With("llama2", "rope_scaling",
                                     StrCat(R"({"type": "llama3", "factor": )", factor,
                                            R"(, "low_freq_factor": 1, "high_freq_factor": 1,
                                 "original_max_position_embeddings": 64})")
                                         .c_str()))
                           .value());
  };
  const auto plain = with("1"), slowed = with("16");
  for (size_t i = 0; i < plain.size(); ++i)
    EXPECT_FLOAT_EQ(slowed[i], plain[i] * 64 > 2 * 3.14159265f ? plain[i] : plain[i] / 16) << i;
}

TEST(Spec, RotatesAPartOfTheHead) {
  const DecoderSpec spec =
      ReadSpec(With("llama2", "rope_scaling",
                    R"({"rope_type": "default", "partial_rotary_factor": 0.5})"))
          .value();
  EXPECT_EQ(spec.head_dim, 32);
  EXPECT_EQ(spec.ropes.at(0).dim, 16);
  EXPECT_FLOAT_EQ(Frequencies(spec)[1], std::pow(10000.0, -2.0 / 16));
}

// base * (factor * length / original - (factor - 1))^(dim / (dim - 2)) beyond the original length.
TEST(Spec, StretchesDynamicallyByTheServedLength) {
  const DecoderSpec spec =
      ReadSpec(With("llama2", "rope_scaling", R"({"type": "dynamic", "factor": 4.0})")).value();
  EXPECT_EQ(spec.max_positions, 2048);
  const RopeSpec& rope = spec.ropes.at(0);
  EXPECT_FLOAT_EQ(RopeFrequencies(rope, 512)[1], std::pow(10000.0, -2.0 / 32));
  const double base = 10000 * std::pow(4.0 * 1024 / 512 - 3, 32.0 / 30);
  EXPECT_FLOAT_EQ(RopeFrequencies(rope, 1024)[1], std::pow(base, -2.0 / 32));
}

TEST(Spec, TakesTheLongFactorsBeyondTheOriginalLength) {
  const DecoderSpec spec = SpecOf("phi3-longrope");
  const RopeSpec& rope = spec.ropes.at(0);
  EXPECT_EQ(rope.type, "longrope");
  EXPECT_NEAR(rope.scale, std::sqrt(1 + std::log(512.0 / 4) / std::log(4.0)), 1e-12);
  const double plain = std::pow(10000.0, -2.0 / 64);
  EXPECT_FLOAT_EQ(RopeFrequencies(rope, 4)[1], plain / rope.short_factors[1]);
  EXPECT_FLOAT_EQ(RopeFrequencies(rope, 5)[1], plain / rope.long_factors[1]);
  EXPECT_NE(rope.short_factors[1], rope.long_factors[1]);
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
  EXPECT_THAT(Windows(ReadSpec(config).value()), ElementsAre(0, 32));
}

std::vector<int> Ropes(const DecoderSpec& spec) {
  std::vector<int> ropes;
  for (const LayerSpec& layer : spec.layer_specs) ropes.push_back(layer.rope);
  return ropes;
}

// What the fixtures leave out: the architecture's own rule.
TEST(Spec, RotatesTheLayersThatEachFamilyRotates) {
  EXPECT_THAT(Ropes(SpecOf("smollm3")), ElementsAre(0, 0, 0, -1));
  Json config = With("smollm3", "no_rope_layers", "null");
  config.Set("no_rope_layer_interval", 2);
  EXPECT_THAT(Ropes(ReadSpec(config).value()), ElementsAre(0, -1, 0, -1));
  EXPECT_THAT(Ropes(SpecOf("exaone4")), ElementsAre(0, 0, 0, -1));
  config = With("exaone4", "layer_types", "null");
  config.Set("sliding_window_pattern", "LG");
  EXPECT_THAT(Windows(ReadSpec(config).value()), ElementsAre(16, 0, 16, 0));
  config.Set("sliding_window", nullptr);
  EXPECT_THAT(Ropes(ReadSpec(config).value()), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(Ropes(SpecOf("cohere2")), ElementsAre(0, 0, 0, -1));
  EXPECT_THAT(Windows(ReadSpec(With("cohere2", "sliding_window_pattern", "2")).value()),
              ElementsAre(16, 0, 16, 0));
  EXPECT_THAT(Windows(ReadSpec(With("olmo3", "layer_types", "null")).value()),
              ElementsAre(16, 16, 16, 0));
}

// As transformers 4 writes it, the scaling is the full layers' alone.
TEST(Spec, StretchesTheRopeOfOlmo3sFullLayersOnly) {
  Json config = With("olmo3", "rope_parameters", "null");
  config.Set("rope_theta", 3e5);
  config.Set("rope_scaling", Json::Parse(R"({"rope_type": "yarn", "factor": 8.0})").value());
  const DecoderSpec spec = ReadSpec(config).value();
  ASSERT_EQ(spec.ropes.size(), 2u);
  EXPECT_EQ(spec.ropes[0].type, "yarn");
  EXPECT_EQ(spec.ropes[1].type, "default");
  EXPECT_EQ(spec.ropes[1].theta, 3e5);
  EXPECT_THAT(Ropes(spec), ElementsAre(1, 1, 1, 0));
}

// Which layers have experts, as each family says it.
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

TEST(Spec, ScalesQueriesByTheLogarithmOfWholeLengths) {
  const QueryScale scale = SpecOf("ministral3").query_scale;
  EXPECT_EQ(scale.At(0), 1);
  EXPECT_EQ(scale.At(63), 1);
  EXPECT_FLOAT_EQ(scale.At(64), static_cast<float>(1 + 0.1 * std::log(2)));
  EXPECT_FLOAT_EQ(scale.At(255), static_cast<float>(1 + 0.1 * std::log(4)));
  EXPECT_EQ((QueryScale{1, 64, 1}.At(62)), 1);
  EXPECT_GT((QueryScale{1, 64, 1}.At(63)), 1);
  EXPECT_EQ(SpecOf("llama").query_scale.At(1 << 20), 1);
}

// HunYuan's 'alpha' makes one base of every length.
TEST(Spec, StretchesTheBaseOfHunYuan) {
  const DecoderSpec spec = SpecOf("hunyuan");
  EXPECT_EQ(spec.ropes.at(0).type, "default");
  EXPECT_NEAR(spec.ropes.at(0).theta, 1e4 * std::pow(1000, 32.0 / 30), 1e-3);
  EXPECT_EQ(spec.max_positions, 2048);
}

TEST(Spec, GivesWindowedLayersOfGemma3TheirOwnRope) {
  const DecoderSpec spec = SpecOf("gemma3");
  ASSERT_EQ(spec.ropes.size(), 2u);
  EXPECT_EQ(spec.ropes[0].theta, 1e6);
  EXPECT_EQ(spec.ropes[1].theta, 1e4);
  EXPECT_EQ(spec.layer_specs[0].rope, 1);
  EXPECT_EQ(spec.layer_specs[5].rope, 0);
  Json old = With("gemma3", "rope_parameters", "null");  // as transformers 4 has it
  old.Set("rope_theta", 2e6);
  old.Set("rope_local_base_freq", 5000.0);
  old.Set("rope_scaling", Json::Parse(R"({"factor": 8.0, "rope_type": "linear"})").value());
  const DecoderSpec stretched = ReadSpec(old).value();
  EXPECT_EQ(stretched.ropes[0].theta, 2e6);
  EXPECT_EQ(stretched.ropes[0].factor, 8);
  EXPECT_EQ(stretched.ropes[1].theta, 5000);
  EXPECT_EQ(stretched.max_positions, 512);
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

TEST(Spec, FallsBackToTheModelType) {
  EXPECT_EQ(ReadSpec(With("opt", "architectures", "[]"))->architecture, "OPTForCausalLM");
  Json config = With("opt", "architectures", "null");
  config.Set("model_type", "gpt2");
  EXPECT_THAT(ErrorOf(config),
              AllOf(HasSubstr("model type 'gpt2'"), HasSubstr("LlamaForCausalLM")));
  config.Set("model_type", nullptr);
  EXPECT_THAT(ErrorOf(config), HasSubstr("'model_type'"));
  EXPECT_THAT(ErrorOf(Json::MakeArray()), HasSubstr("want an object"));
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

// Whatever a config says, it is read or refused; what is read describes a model of finite size.
void ExpectReadOrRefused(const Json& config) {
  const auto spec = ReadSpec(config);
  if (!spec) {
    EXPECT_FALSE(spec.error().message.empty());
    return;
  }
  EXPECT_LT(ParameterCount(*spec), uint64_t{1} << 60);
  EXPECT_LT(KvBytesPerToken(*spec, kernels::KvDtype::kF32), uint64_t{1} << 40);
}

TEST(Architectures, HaveAFixtureEach) {
  std::set<std::string> tested;
  for (const std::string& model : tests::ModelFixtures()) tested.insert(SpecOf(model).architecture);
  std::vector<std::string> embedders = tests::EncoderFixtures();
  embedders.emplace_back("qwen3-embedding");  // no encoder: its attention is causal
  for (const std::string& model : embedders)
    tested.insert(
        ReadSpec(Json::ParseFile(StrCat(tests::TestData(), "/embedders/", model, "/config.json"))
                     .value())
            .value()
            .architecture);
  for (const Architecture* architecture : Architectures()) {
    EXPECT_TRUE(tested.contains(std::string(architecture->name))) << architecture->name;
    EXPECT_FALSE(architecture->models.empty()) << architecture->name;
  }
}

TEST(Architectures, AreInTheDocumentation) {
  EXPECT_THAT(ReadFile(tests::SourceFolder() / "docs/models.md").value(),
              HasSubstr(ArchitectureTable()))
      << "run scripts/registries";
}

TEST(Spec, SurvivesHostileValuesInEveryField) {
  const char* const kHostile[] = {
      "null",       "true",         "-1",    "0",    "1",       "7",
      "2147483648", "1e30",         "1e-30", "[]",   "{}",      R"("x")",
      "[0]",        R"([{"a":1}])", "0.5",   "-0.0", "1048577", R"({"rope_type":3})"};
  for (const std::string& model : tests::ModelFixtures()) {
    const Json config = Config(model);
    for (const auto& [key, value] : config.object())
      for (const char* hostile : kHostile) ExpectReadOrRefused(With(model, key, hostile));
  }
}

TEST(Spec, SurvivesTruncationAndFlippedBytes) {
  std::mt19937 random(20261120);
  int read = 0;
  for (const char* model : {"llama", "qwen2", "opt"}) {
    const std::string good = Config(model).Dump();
    for (int round = 0; round < 1000; ++round) {
      std::string text = good;
      if (round % 10 == 0) text.resize(random() % text.size());
      for (size_t flips = random() % 3; flips > 0 && !text.empty(); --flips)
        text[random() % text.size()] = static_cast<char>(' ' + random() % 95);
      const auto config = Json::Parse(text);
      if (!config) continue;
      ++read;
      ExpectReadOrRefused(*config);
    }
  }
  EXPECT_GT(read, 500);
}

TEST(TensorList, FillsInTheLayer) {
  EXPECT_EQ(LayerTensor("a.{}.b", 12), "a.12.b");
  EXPECT_EQ(LayerTensor("norm", 1), "norm");
}

}  // namespace
}  // namespace pinion
