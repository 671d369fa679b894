// FP8 and MXFP4: what their bytes mean, and files that do not fit. The checkpoints of
// tests/data/quantised hold whole models to the references (tests/e2e/test_quantised.py).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/checkpoint/model.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class PublishedFloats : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = StrCat(::testing::TempDir(), "published-floats-",
                     ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A copy of a fixture with one spelling replaced by another of the same length in its header.
  std::string ErrorWith(const char* fixture, const std::string& from, const std::string& to) {
    EXPECT_EQ(from.size(), to.size());
    fs::remove_all(folder_);
    fs::copy(StrCat(tests::TestData(), "/quantised/", fixture), folder_);
    const std::string path = folder_ + "/model.safetensors";
    std::string bytes = ReadFile(path).value();
    const size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos);
    bytes.replace(at, from.size(), to);
    EXPECT_TRUE(WriteFile(path, bytes));
    const auto opened = OpenWeights(FindModel(folder_).value());
    return opened ? "no error" : opened.error().message;
  }
  std::string folder_;
};

TEST_F(PublishedFloats, NameTensorsThatAreMissingOrDoNotFit) {
  EXPECT_THAT(
      ErrorWith("qwen3-fp8", "0.mlp.up_proj.weight_scale_inv", "0.mlp.up_proj.weight_scale_out"),
      HasSubstr("'model.layers.0.mlp.up_proj' has no 'weight_scale'"));
  EXPECT_THAT(ErrorWith("llama-fp8-channel", R"("shape":[96,1])", R"("shape":[48,2])"),
              HasSubstr("has shape [48, 2], want [96, 1]"));
  EXPECT_THAT(
      ErrorWith("gptoss-mxfp4", "0.mlp.experts.down_proj_scales", "0.mlp.experts.down_proj_scalex"),
      HasSubstr("'model.layers.0.mlp.experts' has no 'down_proj_scales'"));
  EXPECT_THAT(ErrorWith("gptoss-mxfp4", R"("shape":[4,96,2,16])", R"("shape":[4,96,4,8] )"),
              HasSubstr("has shape [4, 96, 4, 8], want [4, 96, 2, 16]"));
}

TEST_F(PublishedFloats, Mxfp4IsReadForGptOssAlone) {
  fs::copy(StrCat(tests::TestData(), "/models/llama"), folder_);
  Json config = Json::ParseFile(folder_ + "/config.json").value();
  config.Set("quantization_config", Json::Object{{"quant_method", "mxfp4"}});
  ASSERT_TRUE(WriteFile(folder_ + "/config.json", config.Dump()));
  const auto opened = OpenWeights(FindModel(folder_).value());
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message, HasSubstr("not for LlamaForCausalLM"));
}

}  // namespace
}  // namespace pinion
