#include "engine/calibrate/quantise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/checkpoint/model.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A copy of a small checkpoint, in a folder that goes with the test.
class Quantised : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/pinion-quantise-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    fs::copy(StrCat(tests::TestData(), "/models/llama"), folder_ + "/model");
    options_.model = folder_ + "/model";
    options_.folder = folder_ + "/copy";
    options_.target = "w8a8";
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Sets the upper half of the last element of a tensor, bfloat16 or float32, to `high`.
  void Poison(const std::string& name, uint16_t high) {
    const auto index = Json::ParseFile(options_.model + "/model.safetensors.index.json");
    const std::string path =
        StrCat(options_.model, "/", index->Find("weight_map")->Find(name)->string());
    std::string file = *ReadFile(path);
    uint64_t header = 0;
    std::memcpy(&header, file.data(), sizeof header);
    const auto entries = Json::Parse(std::string_view(file).substr(sizeof header, header));
    const auto end = entries->Find(name)->Find("data_offsets")->array()[1].integer();
    const size_t at = sizeof header + header + static_cast<size_t>(end) - sizeof high;
    std::memcpy(file.data() + at, &high, sizeof high);
    ASSERT_TRUE(WriteFile(path, file));
  }

  std::string folder_;
  QuantiseOptions options_;
};

TEST_F(Quantised, RefusesWeightsThatRoundingWouldMakeLookValid) {
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  for (const uint16_t odd : {0x7fc0, 0xff80}) {
    Poison(name, odd);
    for (const char* text : {"", "/config.json"}) {
      options_.calibration = *text ? options_.model + text : "";
      const Status done = Quantise(options_);
      ASSERT_FALSE(done);
      EXPECT_THAT(done.error().message, HasSubstr("tensor '" + name + "'"));
      EXPECT_THAT(done.error().message, HasSubstr("in row 63, want finite weights"));
      EXPECT_FALSE(fs::exists(options_.folder));
    }
  }
}

// Gated DeltaNet's matrices stay as they are; the attention's and the MLPs' are rounded.
TEST_F(Quantised, RoundsAHybridButDoesNotCalibrateIt) {
  options_.model = StrCat(tests::TestData(), "/models/qwen3next");
  options_.calibration = folder_ + "/lines.jsonl";
  const Status done = Quantise(options_);
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("has recurrent layers"));
  options_.calibration.clear();
  ASSERT_TRUE(Quantise(options_));
  const auto weights = OpenWeights(*FindModel(options_.folder));
  ASSERT_TRUE(weights) << weights.error().message;
  const std::string layer = "model.layers.3.";
  EXPECT_TRUE((*weights)->Quantised(layer + "self_attn.q_proj.weight"));
  EXPECT_TRUE((*weights)->Quantised(layer + "mlp.shared_expert.up_proj.weight"));
  EXPECT_FALSE((*weights)->Quantised(layer + "mlp.shared_expert_gate.weight"));
  EXPECT_FALSE((*weights)->Quantised("model.layers.0.linear_attn.in_proj_qkvz.weight"));
}

TEST_F(Quantised, RefusesTextWithTokensThatTheModelLacks) {
  options_.calibration = folder_ + "/lines.jsonl";
  ASSERT_TRUE(WriteFile(options_.calibration, R"({"input_ids": [5, 575, 576]})"));
  const Status done = Quantise(options_);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message,
            "the calibration text has token 576, outside the model's vocabulary of 576; leave it "
            "out");
}

TEST_F(Quantised, TakesFiniteOnes) {
  const Status done = Quantise(options_);
  EXPECT_TRUE(done) << done.error().message;
  EXPECT_TRUE(fs::exists(options_.folder + "/config.json"));
}

}  // namespace
}  // namespace pinion
