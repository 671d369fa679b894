// The ends of answers that a GGUF file states, and requests that its architecture's reader does not
// compute.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/strings.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_blocks.h"
#include "engine/checkpoint/gguf_tokens.h"
#include "engine/spec/spec.h"
#include "engine/text/tokenizer.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;

std::string EndsOf(std::string_view metadata) {
  return GgufEnds(Json::Parse(metadata).value()).Dump();
}

TEST(GgufEnds, AreAllThatTheMetadataNames) {
  EXPECT_EQ(EndsOf(R"({"tokenizer.ggml.eos_token_id": 7})"), "[7]");
  EXPECT_EQ(EndsOf(R"({"tokenizer.ggml.eos_token_id": 1, "tokenizer.ggml.eos_token_ids": [1, 4],
                       "tokenizer.ggml.eot_token_id": 8, "tokenizer.ggml.eom_token_id": 9})"),
            "[1,1,4,8,9]");
}

// Gemma 3's generation_config.json has both, its files name the first.
TEST(GgufEnds, AreTokensThatEndATurnInEveryModelWhoseVocabularyHasThem) {
  EXPECT_EQ(EndsOf(R"({"tokenizer.ggml.eos_token_id": 1,
                       "tokenizer.ggml.tokens": ["<pad>", "<eos>", "a", "<end_of_turn>", "b"]})"),
            "[1,3]");
  EXPECT_EQ(EndsOf(R"({"tokenizer.ggml.eos_token_id": 0,
                       "tokenizer.ggml.tokens": ["<|endoftext|>", "<|assistant|>", "<|end|>"]})"),
            "[0,0,2]");
}

TEST(GgufEnds, AreNotTheEndsOfMessagesThatOthersFollow) {
  EXPECT_EQ(EndsOf(R"({"tokenizer.ggml.eos_token_id": 1,
                       "tokenizer.ggml.tokens": ["<|end|>", "<|return|>", "<|call|>"]})"),
            "[1,1,2]");
}

TEST(GgufEnds, AreNotHtml) {
  EXPECT_EQ(EndsOf(R"({"tokenizer.ggml.eos_token_id": 0,
                       "tokenizer.ggml.tokens": ["<eos>", "<s>", "</s>"]})"),
            "[0]");
}

// Of every architecture: two layers of four heads, 16 wide, without tensors but for the embedding.
GgufFile FileOf(std::string_view architecture, std::string_view metadata) {
  constexpr std::string_view kUsual =
      R"({"block_count": 2, "embedding_length": 64, "feed_forward_length": 128,
          "context_length": 512, "attention.head_count": 4,
          "attention.layer_norm_rms_epsilon": 1e-5})";
  GgufFile file;
  file.header.metadata = Json::Object{{"general.architecture", architecture}};
  for (const std::string_view part : {kUsual, metadata}) {
    const Json entries = Json::Parse(part).value();
    for (const auto& [key, value] : entries.object())
      file.header.metadata.Set(StrCat(architecture, ".", key), value);
  }
  file.header.metadata.Set("tokenizer.ggml.eos_token_id", 5);
  file.header.metadata.Set("tokenizer.ggml.tokens", Json::Array{Json("a"), Json("<|im_end|>")});
  GgufTensor embedding;
  embedding.name = "token_embd.weight";
  embedding.type = FindGgufType(0);
  embedding.shape = {96, 64};
  file.header.tensors.push_back(embedding);
  return file;
}

Result<Json> ConfigOf(std::string_view architecture, std::string_view metadata) {
  return GgufConfig(FileOf(architecture, metadata));
}

std::string ErrorOf(std::string_view architecture, std::string_view metadata) {
  const auto config = ConfigOf(architecture, metadata);
  return config ? "no error" : config.error().message;
}

TEST(GgufMetadata, GivesTheSpecEveryEnd) {
  const auto config = ConfigOf("llama", "{}");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->Find("eos_token_id")->Dump(), "[5,1]");
}

// Mistral Large 3 says that it is of DeepSeek's architecture; multipliers would be Granite's.
TEST(GgufMetadata, RefusesFieldsThatItsArchitectureDoesNotCompute) {
  const auto refusal = [](std::string_view key, std::string_view value, std::string_view runs) {
    return StrCat("'", key, "' is ", value,
                  ", which changes the model in a way Pinion does not compute; it runs ", runs);
  };
  EXPECT_EQ(ErrorOf("llama", R"({"attention.temperature_scale": 0.1})"),
            refusal("attention.temperature_scale", "0.1", "only 0"));
  EXPECT_EQ(ErrorOf("llama", R"({"embedding_scale": 12})"),
            refusal("embedding_scale", "12", "only 0 or 1"));
  EXPECT_EQ(ErrorOf("llama", R"({"attention.scale": 0.5})"),
            refusal("attention.scale", "0.5", "only 0"));
  EXPECT_EQ(ErrorOf("qwen3moe", R"({"expert_weights_scale": 2.5})"),
            refusal("expert_weights_scale", "2.5", "only 0 or 1"));
  EXPECT_EQ(ErrorOf("gemma3", R"({"attn_logit_softcapping": 50})"),
            refusal("attn_logit_softcapping", "50", "only 0"));
  EXPECT_EQ(ErrorOf("mistral3", R"({"attention.temperature_scale": 0.1})"),
            refusal("attention.temperature_scale", "0.1", "only 0"))
      << "without yarn there is no length from which on it counts";
  EXPECT_EQ(ErrorOf("mistral3", R"({"rope.scaling.original_context_length": 64,
                                    "attention.temperature_length": 128})"),
            refusal("attention.temperature_length", "128", "only 0"));
}

TEST(GgufMetadata, TakesFieldsThatItsArchitectureReadsOrThatChangeNothing) {
  EXPECT_EQ(ErrorOf("granite", R"({"attention.scale": 0.5, "embedding_scale": 12,
                                   "residual_scale": 0.2, "logit_scale": 8})"),
            "no error");
  EXPECT_EQ(ErrorOf("gemma2", R"({"attn_logit_softcapping": 50, "final_logit_softcapping": 30})"),
            "no error");
  EXPECT_EQ(ErrorOf("llama", R"({"attention.scale": 0, "embedding_scale": 1, "logit_scale": 0,
                                 "expert_weights_scale": 1.0, "use_parallel_residual": false})"),
            "no error");
}

// Converters leave some matrices in F32; the file's type is that of the others.
TEST(GgufMetadata, ComputesInTheTypeOfTheLargeMatrices) {
  constexpr uint32_t kF32 = 0, kF16 = 1, kBf16 = 30;
  const auto type_with = [](uint32_t type, std::string_view matrix) {
    GgufFile file = FileOf("qwen3moe", "{}");
    file.header.tensors[0].type = FindGgufType(type);
    GgufTensor tensor = file.header.tensors[0];
    tensor.name = matrix;
    tensor.type = FindGgufType(kF32);
    file.header.tensors.push_back(tensor);
    return GgufConfig(file).value().Find("torch_dtype")->string();
  };
  for (const char* small :
       {"blk.0.ffn_gate_inp.weight", "blk.0.ffn_gate_inp_shexp.weight", "blk.0.indexer.proj.weight",
        "blk.0.ssm_conv1d_q.weight", "blk.0.ssm_conv1d_k.weight", "blk.0.ssm_conv1d_v.weight",
        "blk.0.altup_correct_coef.weight", "blk.0.altup_predict_coef.weight",
        "blk.0.attn_k_norm.weight", "blk.0.ssm_a"}) {
    EXPECT_EQ(type_with(kF16, small), "float16") << small;
    EXPECT_EQ(type_with(kBf16, small), "bfloat16") << small;
    EXPECT_EQ(type_with(kF32, small), "float32") << small;
  }
  EXPECT_EQ(type_with(kF16, "output.weight"), "bfloat16") << "two types of large matrices";
}

// GLM-4.7-Flash's files do not always state the function by which experts are chosen.
TEST(GgufMetadata, AFileOfDeepSeeksArchitectureIsGlmsByItsTokenizer) {
  constexpr std::string_view kLatent =
      R"({"attention.key_length_mla": 32, "rope.dimension_count": 16)";
  const auto read_as = [&](std::string_view pre, std::string_view further) {
    GgufFile file = FileOf("deepseek2", StrCat(kLatent, further, "}"));
    file.header.metadata.Set("tokenizer.ggml.pre", pre);
    return GgufConfig(file).value().Find("architectures")->array()[0].string();
  };
  EXPECT_EQ(read_as("glm4", ""), "Glm4MoeLiteForCausalLM");
  EXPECT_EQ(read_as("glm4", R"(, "expert_gating_func": 2)"), "Glm4MoeLiteForCausalLM");
  EXPECT_EQ(read_as("deepseek-v3", R"(, "expert_gating_func": 2)"), "DeepseekV3ForCausalLM");
  EXPECT_EQ(read_as("deepseek-llm", ""), "DeepseekV2ForCausalLM");
}

DecoderSpec Ministral3With(std::string_view metadata) {
  const auto config =
      ConfigOf("mistral3", StrCat(R"({"rope.scaling.type": "yarn", "rope.scaling.factor": 16,
                                      "rope.scaling.original_context_length": 64)",
                                  metadata, "}"));
  EXPECT_TRUE(config) << config.error().message;
  const auto spec = ReadSpec(config.value());
  EXPECT_TRUE(spec) << spec.error().message;
  return spec.value();
}

// The rotation's scale is (1 + 0.1 ln 16) / (1 + 0.1 MULTIPLIER ln 16).
TEST(GgufMetadata, Ministral3sMultiplierDividesTheRotationsScale) {
  const double whole = 1 + 0.1 * std::log(16.0);
  const auto scale = [](std::string_view metadata) {
    return Ministral3With(metadata).ropes[0].scale;
  };
  EXPECT_DOUBLE_EQ(scale(R"(, "rope.scaling.yarn_log_multiplier": 1.0)"), 1);
  EXPECT_DOUBLE_EQ(scale(R"(, "rope.scaling.yarn_log_multiplier": 0.5)"),
                   whole / (1 + 0.05 * std::log(16.0)));
  EXPECT_DOUBLE_EQ(scale(R"(, "rope.scaling.yarn_log_multiplier": 0.0)"), whole);
  EXPECT_DOUBLE_EQ(scale(""), whole);
}

TEST(GgufMetadata, Ministral3sQueriesGrowFromTheLengthInTrainingOn) {
  const DecoderSpec spec = Ministral3With(R"(, "attention.temperature_scale": 0.25)");
  EXPECT_DOUBLE_EQ(spec.query_scale.weight, 0.25);
  EXPECT_DOUBLE_EQ(spec.query_scale.length, 64);
  EXPECT_TRUE(spec.layer_specs[1].scales_queries);
  EXPECT_FALSE(Ministral3With("").layer_specs[1].scales_queries);
}

constexpr std::string_view kLatents =
    R"("attention.key_length_mla": 48, "attention.value_length_mla": 32,
       "attention.kv_lora_rank": 64, "rope.dimension_count": 16, "expert_count": 8,
       "expert_used_count": 2, "expert_shared_count": 1, "expert_feed_forward_length": 32,
       "leading_dense_block_count": 1)";

RouterSpec RouterOf(std::string_view groups) {
  const auto config = ConfigOf("deepseek2", StrCat("{", kLatents, groups, "}"));
  EXPECT_TRUE(config) << config.error().message;
  const auto spec = ReadSpec(config.value());
  EXPECT_TRUE(spec) << spec.error().message;
  return spec->moe.router;
}

// DeepSeek-V2 chooses from the groups whose best expert is the best, DeepSeek-V2-Lite from all.
TEST(GgufMetadata, DeepSeekV2ChoosesFromTheGroupsThatTheFileStates) {
  const RouterSpec router = RouterOf(R"(, "expert_group_count": 4, "expert_group_used_count": 2)");
  EXPECT_EQ(router.groups, 4);
  EXPECT_EQ(router.top_groups, 2);
  EXPECT_EQ(router.group_score, GroupScore::kBest);
  EXPECT_FALSE(router.correction);
  EXPECT_EQ(RouterOf("").groups, 1);
}

// Of a file whose tokens are <pad>, <bos>, <unk> and the letter a.
std::unique_ptr<Tokenizer> TokenizerWith(std::string_view metadata) {
  GgufFile file;
  file.header.metadata = Json::Parse(R"({"tokenizer.ggml.tokens": ["<pad>", "<bos>", "<unk>", "a"],
                      "tokenizer.ggml.token_type": [3, 3, 2, 1], "tokenizer.ggml.merges": [],
                      "tokenizer.ggml.scores": [0, 0, 0, 0], "tokenizer.ggml.bos_token_id": 1,
                      "tokenizer.ggml.unknown_token_id": 2})")
                             .value();
  const Json more = Json::Parse(metadata).value();
  for (const auto& [key, value] : more.object()) file.header.metadata.Set(key, value);
  const auto read = ReadGgufTokenizer(file);
  EXPECT_TRUE(read) << read.error().message;
  return MakeTokenizer(read->tokenizer, read->tokenizer_config).value();
}

// Its first files ask for none, by mistake.
TEST(GgufTokenizer, Gemma4AlwaysBeginsWithBos) {
  const auto ids = [](std::string_view model, std::string_view adds) {
    const auto tokenizer = TokenizerWith(
        StrCat(R"({"tokenizer.ggml.model": ")", model, R"(", "tokenizer.ggml.add_space_prefix": )",
               R"(false, "tokenizer.ggml.add_bos_token": )", adds, "}"));
    return tokenizer->Encode("a", /*add_special_tokens=*/true).value();
  };
  EXPECT_THAT(ids("gemma4", "false"), ElementsAre(1, 3));
  EXPECT_THAT(ids("gemma4", "true"), ElementsAre(1, 3));
  EXPECT_THAT(ids("llama", "true"), ElementsAre(1, 3));
  EXPECT_THAT(ids("llama", "false"), ElementsAre(3));
}

// As its tokenizer.json, which says it of each token.
TEST(GgufTokenizer, Phi3sTokensTakeTheWhiteSpaceBehindThem) {
  const auto ids = [](std::string_view architecture, std::string_view text) {
    const auto tokenizer = TokenizerWith(
        StrCat(R"({"general.architecture": ")", architecture, R"(", "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": ["<|endoftext|>", "<s>", "<unk>", "<|user|>", "▁", "<0x0A>",
                                      "a"],
            "tokenizer.ggml.token_type": [3, 3, 2, 3, 1, 6, 1],
            "tokenizer.ggml.scores": [0, 0, 0, 0, 0, 0, 0]})"));
    return tokenizer->Encode(text, /*add_special_tokens=*/false).value();
  };
  EXPECT_THAT(ids("phi3", "<|user|>\n a"), ElementsAre(3, 4, 6));
  EXPECT_THAT(ids("phi3", "<|endoftext|>\na"), ElementsAre(0, 4, 5, 6));
  EXPECT_THAT(ids("llama", "<|user|>\na"), ElementsAre(3, 4, 5, 6));
}

TEST(GgufTokenizer, HasTheFilesTemplateForTools) {
  const auto tokenizer = TokenizerWith(
      R"({"tokenizer.ggml.model": "llama", "tokenizer.chat_template": "usual",
          "tokenizer.chat_template.tool_use": "with tools"})");
  EXPECT_EQ(tokenizer->chat_template(), "usual");
  EXPECT_EQ(tokenizer->tool_template(), "with tools");
}

}  // namespace
}  // namespace pinion
