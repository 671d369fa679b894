// What a GGUF file says of its answers' ends and of its router.

#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_blocks.h"
#include "engine/checkpoint/gguf_tokens.h"
#include "engine/spec/spec.h"

namespace pinion {
namespace {

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
Result<Json> ConfigOf(std::string_view architecture, std::string_view metadata) {
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
  return GgufConfig(file);
}

TEST(GgufMetadata, GivesTheSpecEveryEnd) {
  const auto config = ConfigOf("llama", "{}");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->Find("eos_token_id")->Dump(), "[5,1]");
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

}  // namespace
}  // namespace pinion
