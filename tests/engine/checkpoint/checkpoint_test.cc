#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/checkpoint/model.h"
#include "engine/checkpoint/preset.h"
#include "engine/spec/tensor_list.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Checkpoint : public ::testing::Test {
 protected:
  Checkpoint() {
    std::string pattern = ::testing::TempDir() + "/pinion-checkpoint-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    target_ = folder_ + "/model";
  }
  ~Checkpoint() override { fs::remove_all(folder_); }

  std::string folder_, target_;
};

std::vector<std::byte> Bytes(const TensorSource& source, const TensorInfo& info) {
  std::vector<std::byte> scratch;
  const auto rows = static_cast<size_t>(info.shape[0]);
  const std::byte* data = source.Rows(info, 0, rows, scratch);
  return {data, data + ElementCount(info.shape) * kernels::SizeOf(info.dtype)};
}

void ExpectSameWeights(const DecoderSpec& spec, const TensorSource& a, const TensorSource& b) {
  for (const TensorSpec& tensor : TensorList(spec)) {
    const TensorInfo left = a.Find(tensor.name).value(), right = b.Find(tensor.name).value();
    EXPECT_EQ(left.dtype, right.dtype) << tensor.name;
    EXPECT_EQ(Bytes(a, left), Bytes(b, right)) << tensor.name;
  }
}

TEST_F(Checkpoint, HoldsThePresetBitForBit) {
  for (const char* dtype : {"bfloat16", "float16", "float32"}) {
    ASSERT_TRUE(WriteCheckpoint(PresetConfig("tiny").value(), dtype, {}, 5, target_));
    const auto files = FindModel(target_);
    ASSERT_TRUE(files) << files.error().message;
    EXPECT_EQ(files->spec.checkpoint_dtype, dtype);
    const auto weights = OpenWeights(*files);
    ASSERT_TRUE(weights) << weights.error().message;
    ExpectSameWeights(files->spec, **weights, *MakeUpWeights(files->spec, dtype, 5));
    fs::remove_all(target_);
  }
}

TEST_F(Checkpoint, IsCutIntoShardsOfTheSizeAsked) {
  constexpr uint64_t kShardBytes = 30'000;  // the embedding alone is larger
  ASSERT_TRUE(
      WriteCheckpoint(PresetConfig("tiny").value(), "bfloat16", {}, 5, target_, kShardBytes));
  EXPECT_FALSE(fs::exists(target_ + "/model.safetensors"));
  int shards = 0;
  for (const auto& entry : fs::directory_iterator(target_)) {
    if (entry.path().extension() != ".safetensors") continue;
    ++shards;
    const auto source = OpenSafetensorsFile(entry.path()).value();
    uint64_t bytes = 0;
    for (const std::string& name : source->Names())
      bytes += Bytes(*source, source->Find(name).value()).size();
    EXPECT_TRUE(bytes <= kShardBytes || source->Names().size() == 1) << entry.path();
  }
  EXPECT_GT(shards, 3);
  const auto files = FindModel(target_).value();
  const auto weights = OpenWeights(files);
  ASSERT_TRUE(weights) << weights.error().message;
  ExpectSameWeights(files.spec, **weights, *MakeUpWeights(files.spec, "bfloat16", 5));
}

TEST_F(Checkpoint, RefusesAFolderThatHoldsAModel) {
  const Json config = PresetConfig("tiny").value();
  ASSERT_TRUE(WriteCheckpoint(config, "bfloat16", {}, 0, target_));
  const auto again = WriteCheckpoint(config, "bfloat16", {}, 1, target_);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kUsage);
  EXPECT_THAT(again.error().message, AllOf(HasSubstr(target_), HasSubstr("config.json")));
}

TEST_F(Checkpoint, RefusesConfigsThatItCannotMake) {
  Json config = PresetConfig("tiny").value();
  EXPECT_THAT(WriteCheckpoint(config, "int8", {}, 0, target_).error().message, HasSubstr("'int8'"));
  config.Set("vocab_size", 100);
  EXPECT_THAT(WriteCheckpoint(config, "float32", {}, 0, target_).error().message,
              HasSubstr("is 100"));
  config.Set("hidden_act", "mish");
  EXPECT_THAT(WriteCheckpoint(config, "float32", {}, 0, target_).error().message,
              HasSubstr("'hidden_act'"));
  EXPECT_FALSE(fs::exists(target_));
}

TEST_F(Checkpoint, SaysHowMuchRoomIsMissing) {
  Json config = PresetConfig("llama-3.1-8b").value();
  config.Set("num_hidden_layers", 1024);
  config.Set("intermediate_size", 1 << 20);  // 26 TB in bfloat16
  const auto made = WriteCheckpoint(config, "bfloat16", {}, 0, target_);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(made.error().message, HasSubstr("free"));
  EXPECT_FALSE(fs::exists(target_));
}

// A limit on file sizes makes a write fail half way, as a full disk does.
TEST_F(Checkpoint, LeavesNothingBehindIfAWriteFails) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {100'000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto made =
      WriteCheckpoint(PresetConfig("tiny").value(), "float32", {}, 0, target_, uint64_t{40'000});
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  ASSERT_FALSE(made);  // the embedding takes 128 KiB
  EXPECT_THAT(made.error().message, AllOf(HasSubstr("cannot write"), HasSubstr(target_)));
  EXPECT_FALSE(fs::exists(target_));
}

}  // namespace
}  // namespace pinion
