// Configs of encoders: what they become, and what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "engine/spec/attention_spec.h"
#include "engine/spec/spec.h"
#include "engine/spec/tensor_list.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

using ::testing::HasSubstr;

Json EncoderJson(const std::string& model) {
  return Json::ParseFile(StrCat(tests::TestData(), "/embedders/", model, "/config.json")).value();
}

DecoderSpec EncoderSpecOf(const std::string& model) { return ReadSpec(EncoderJson(model)).value(); }

Json EncoderWith(const std::string& model, std::string_view key, std::string_view value) {
  Json config = EncoderJson(model);
  config.Set(key, Json::Parse(value).value());
  return config;
}

std::string EncoderErrorOf(const Json& config) {
  const auto spec = ReadSpec(config);
  return spec ? "no error" : spec.error().message;
}

TEST(EncoderSpec, IsBidirectionalAndHasNoHead) {
  for (const std::string& model : tests::EncoderFixtures()) {
    const DecoderSpec spec = EncoderSpecOf(model);
    EXPECT_TRUE(spec.bidirectional) << model;
    EXPECT_FALSE(spec.has_head()) << model;
    EXPECT_EQ(spec.output_width(), spec.hidden) << model;
    EXPECT_EQ(spec.classifier.labels, model.find("reranker") == model.npos ? 0 : 1) << model;
  }
}

TEST(EncoderSpec, CountsXlmRobertasPositionsFromBehindItsPadding) {
  EXPECT_EQ(EncoderSpecOf("xlmr").position_offset, 2);
  EXPECT_EQ(EncoderSpecOf("xlmr").max_positions, 512);
  EXPECT_EQ(ReadSpec(EncoderWith("xlmr", "pad_token_id", "4")).value().position_offset, 5);
  EXPECT_EQ(EncoderSpecOf("bert-cls").position_offset, 0);
  EXPECT_THAT(EncoderErrorOf(EncoderWith("xlmr", "pad_token_id", "513")),
              HasSubstr("'pad_token_id' is 513"));
}

// Half of 16 each way, the token itself not counted.
TEST(EncoderSpec, HalvesWindows) {
  for (const char* model : {"modernbert", "embeddinggemma"}) {
    const Reach reach = LayerAttention(EncoderSpecOf(model), 1).reach;
    EXPECT_EQ(reach.window, 17) << model;
    EXPECT_EQ(reach.ahead, 8) << model;
  }
  EXPECT_EQ(LayerAttention(EncoderSpecOf("modernbert"), 0).reach,
            (Reach{.ahead = Reach::kWholeSequence}));
  const DecoderSpec odd = ReadSpec(EncoderWith("embeddinggemma", "sliding_window", "17")).value();
  EXPECT_EQ(LayerAttention(odd, 0).reach.ahead, 8);
}

TEST(EncoderSpec, ReadsGemmasTextModelWithoutBothDirectionsToo) {
  const DecoderSpec spec =
      ReadSpec(EncoderWith("embeddinggemma", "use_bidirectional_attention", "false")).value();
  EXPECT_EQ(LayerAttention(spec, 0).reach, (Reach{.window = 16}));
  Json config = EncoderJson("embeddinggemma");
  config.Set("architectures", Json::Array{"Gemma3ForCausalLM"});
  EXPECT_THAT(EncoderErrorOf(config), HasSubstr("'use_bidirectional_attention' is true"));
}

// The fields that transformers 4 had, and the layers that they stand for.
TEST(EncoderSpec, ReadsModernBertsOlderFields) {
  Json config = EncoderJson("modernbert");
  for (const char* key : {"rope_parameters", "layer_types"}) config.Set(key, Json());
  config.Set("global_rope_theta", 1000.0);
  config.Set("local_rope_theta", 100.0);
  config.Set("global_attn_every_n_layers", 3);
  const DecoderSpec spec = ReadSpec(config).value();
  EXPECT_EQ(spec.ropes.at(0).theta, 1000);
  EXPECT_EQ(spec.ropes.at(1).theta, 100);
  std::vector<int> windows;
  for (const LayerSpec& layer : spec.layer_specs) windows.push_back(layer.window);
  EXPECT_EQ(windows, std::vector<int>({0, 9, 9, 0}));
}

TEST(EncoderSpec, ReadsNomicBertsPublishedFields) {
  const Json published = Json::Parse(R"({"architectures": ["NomicBertModel"], "n_embd": 64,
      "n_head": 4, "n_inner": 128, "n_layer": 3, "n_positions": 512, "layer_norm_epsilon": 1e-12,
      "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "activation_function": "swiglu",
      "rotary_scaling_factor": null, "causal": false, "prenorm": false, "vocab_size": 600,
      "type_vocab_size": 2, "qkv_proj_bias": false, "torch_dtype": "float32"})")
                             .value();
  const auto spec = ReadSpec(published);
  ASSERT_TRUE(spec) << spec.error().message;
  const DecoderSpec other = EncoderSpecOf("nomicbert");
  EXPECT_EQ(spec->hidden, other.hidden);
  EXPECT_EQ(spec->head_dim, other.head_dim);
  EXPECT_EQ(spec->intermediate, other.intermediate);
  EXPECT_EQ(spec->max_positions, other.max_positions);
  EXPECT_EQ(spec->ropes.at(0).theta, other.ropes.at(0).theta);
  EXPECT_EQ(ParameterCount(*spec), ParameterCount(other));
  Json stretched = published;
  stretched.Set("rotary_scaling_factor", 2.0);
  EXPECT_THAT(EncoderErrorOf(stretched), HasSubstr("'rotary_scaling_factor' is 2"));
}

TEST(EncoderSpec, RefusesFieldsThatItDoesNotCompute) {
  EXPECT_THAT(EncoderErrorOf(EncoderWith("bert-cls", "is_decoder", "true")),
              HasSubstr("'is_decoder' is true"));
  EXPECT_THAT(
      EncoderErrorOf(EncoderWith("bert-cls", "position_embedding_type", R"("relative_key")")),
      HasSubstr("'position_embedding_type'"));
  EXPECT_THAT(
      EncoderErrorOf(EncoderWith("modernbert-reranker", "classifier_activation", R"("silu")")),
      HasSubstr("'classifier_activation'"));
  EXPECT_THAT(EncoderErrorOf(EncoderWith("modernbert-reranker", "classifier_pooling", R"("max")")),
              HasSubstr("'classifier_pooling' is 'max', want cls or mean"));
  EXPECT_THAT(EncoderErrorOf(EncoderWith("nomicbert", "num_experts", "8")),
              HasSubstr("'num_experts' is 8"));
  EXPECT_THAT(EncoderErrorOf(EncoderWith("bert-reranker", "id2label", "{}")),
              HasSubstr("'id2label'"));
  EXPECT_THAT(EncoderErrorOf(EncoderWith("bert-cls", "type_vocab_size", "0")),
              HasSubstr("'type_vocab_size' is 0, want 1 to 256"));
}

TEST(EncoderSpec, SurvivesHostileValuesInEveryField) {
  for (const std::string& model : tests::EncoderFixtures()) {
    const Json config = EncoderJson(model);
    for (const auto& [key, value] : config.object())
      for (const char* hostile : {"null", "true", "-1", "0", "1", "2147483648", "1e30", "[]", "{}",
                                  R"("x")", "0.5", R"({"rope_type":3})"}) {
        const auto spec = ReadSpec(EncoderWith(model, key, hostile));
        if (spec)
          EXPECT_LT(ParameterCount(*spec), uint64_t{1} << 60) << model << key << hostile;
        else
          EXPECT_FALSE(spec.error().message.empty());
      }
  }
}

}  // namespace
}  // namespace pinion
