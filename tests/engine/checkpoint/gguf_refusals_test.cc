// Refusals of whole GGUF files: under the names that the files have for their fields.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/checkpoint/model.h"
#include "engine/checkpoint/unread_layers.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kWholeValue = 4, kRealValue = 6, kTextValue = 8;

template <typename T>
void Put(std::string& file, T value) {
  file.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void PutText(std::string& file, std::string_view text) {
  Put<uint64_t>(file, text.size());
  file += text;
}

struct Value {
  std::string_view key;  // after "qwen3."
  double value;
  bool is_float = false;
};

// A file of one layer, but with one value changed; its tensors are the embedding and `further`.
std::string File(const Value& changed, std::string_view further) {
  const Value values[] = {
      {"block_count", 1},           {"embedding_length", 64},
      {"feed_forward_length", 128}, {"context_length", 512},
      {"attention.head_count", 4},  {"attention.head_count_kv", 2},
      {"attention.key_length", 16}, {"attention.layer_norm_rms_epsilon", 1e-5, true},
      {"rope.freq_base", 1e4, true}};
  std::string file = "GGUF";
  Put<uint32_t>(file, 3);
  Put<uint64_t>(file, 2);
  Put<uint64_t>(file, std::size(values) + 1);
  PutText(file, "general.architecture");
  Put(file, kTextValue);
  PutText(file, "qwen3");
  for (const Value& usual : values) {
    const double value = usual.key == changed.key ? changed.value : usual.value;
    PutText(file, StrCat("qwen3.", usual.key));
    Put(file, usual.is_float ? kRealValue : kWholeValue);
    if (usual.is_float)
      Put(file, static_cast<float>(value));
    else
      Put(file, static_cast<uint32_t>(value));
  }
  constexpr uint64_t kRows = 8, kColumns = 64;
  uint64_t offset = 0;
  for (const std::string_view tensor : {std::string_view("token_embd.weight"), further}) {
    PutText(file, tensor);
    Put<uint32_t>(file, 2);
    Put(file, kColumns);
    Put(file, kRows);
    Put<uint32_t>(file, 0);  // F32
    Put(file, offset);
    offset += kRows * kColumns * sizeof(float);
  }
  file.resize((file.size() + 31) / 32 * 32 + offset);
  return file;
}

class GgufRefusal : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  Result<ModelFiles> Find(const Value& changed, std::string_view further) {
    EXPECT_TRUE(WriteFile(path_, File(changed, further)));
    return FindModel(path_);
  }
  const std::string path_ = StrCat(::testing::TempDir(), "/gguf_refusal_", getpid(), ".gguf");
};

TEST_F(GgufRefusal, NamesTheKeyOfTheFile) {
  const auto usual = Find({"block_count", 1}, "blk.0.attn_q.weight");
  ASSERT_TRUE(usual) << usual.error().message;
  for (const char* key :
       {"embedding_length", "feed_forward_length", "context_length", "attention.head_count",
        "attention.head_count_kv", "rope.freq_base", "block_count"}) {
    const auto refused = Find({key, 0}, "blk.0.attn_q.weight");
    ASSERT_FALSE(refused) << key;
    EXPECT_THAT(refused.error().message, HasSubstr(StrCat(key, "' is 0"))) << key;
    EXPECT_THAT(refused.error().message, ::testing::Not(HasSubstr("hidden"))) << key;
  }
  EXPECT_THAT(Find({"attention.head_count_kv", 3}, "blk.0.attn_q.weight").error().message,
              HasSubstr("'qwen3.attention.head_count' is 4, want a multiple of the 3 key-value "
                        "heads of layer 0 ('qwen3.attention.head_count_kv')"));
}

TEST_F(GgufRefusal, TellsOfBlocksThatTheFileDoesNotCount) {
  const ModelFiles other = FindModel(StrCat(tests::TestData(), "/models/llama")).value();
  const auto weights = OpenWeights(other).value();  // only the header counts
  const auto said = [&](std::string_view tensor) {
    return UnreadLayers(Find({"block_count", 1}, tensor).value(), *weights).value_or("nothing");
  };
  EXPECT_EQ(said("blk.0.attn_q.weight"), "nothing");
  EXPECT_EQ(said("blk.1.nextn.eh_proj.weight"), "nothing") << "it predicts further tokens";
  EXPECT_THAT(said("blk.1.attn_q.weight"),
              HasSubstr("tensor 'blk.1.attn_q.weight' and perhaps others belong to layers that are "
                        "not computed: 'qwen3.block_count' is 1;"));
}

}  // namespace
}  // namespace pinion
