#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/model.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kFloats = 0, kQ80 = 8, kNvfp4 = 40;

// Opens the tensors of a GGUF file that holds some of those of a fixture: OpenGgufTensors leaves it
// to a later check to name the missing ones.
class GgufTensors : public ::testing::Test {
 protected:
  void Describe(const std::string& fixture, const char* architecture) {
    spec_ = FindModel(StrCat(tests::TestData(), "/models/", fixture)).value().spec;
    header_.metadata.Set("general.architecture", architecture);
  }
  void Add(const std::string& name, uint32_t type, std::vector<int64_t> shape,
           const std::string& data = "") {
    GgufTensor tensor{name, FindGgufType(type), std::move(shape)};
    tensor.begin = data_.size();
    data_ += data;
    header_.tensors.push_back(std::move(tensor));
  }
  void AddFloats(const std::string& name, const std::vector<float>& values) {
    std::string data(values.size() * sizeof(float), '\0');
    std::memcpy(data.data(), values.data(), data.size());
    Add(name, kFloats, {static_cast<int64_t>(values.size())}, data);
  }
  std::string ErrorOf() const {
    auto file = TemporaryFile::Make("a test").value();
    EXPECT_TRUE(file.Write(data_ + std::string(64, '\0')));
    const auto mapped = MappedFile::Open(file.path()).value();
    const auto opened =
        OpenGgufTensors(std::make_shared<const GgufFile>(GgufFile{{mapped}, header_}), spec_);
    return opened ? "no error" : opened.error().message;
  }
  // With these factors, which are not kept.
  std::string ErrorOfFactors(const std::string& scale, const std::vector<float>& factors) {
    AddFloats(scale, factors);
    std::string error = ErrorOf();
    header_.tensors.pop_back();
    return error;
  }

  DecoderSpec spec_;

 private:
  GgufHeader header_{Json::MakeObject(), {}};
  std::string data_;
};

// A row of 64 read as 64 rows of one would be a block for each of them.
TEST_F(GgufTensors, BlocksDoNotBecomeAColumn) {
  Describe("llama", "llama");
  spec_.intermediate = 1;
  Add("blk.0.ffn_down.weight", kQ80, {1, 64});
  EXPECT_THAT(ErrorOf(), HasSubstr("tensor 'blk.0.ffn_down.weight' of "));
  EXPECT_THAT(ErrorOf(), HasSubstr(" has shape [1, 64], its metadata asks for [64, 1]"));
}

TEST_F(GgufTensors, AVectorOfBlocksIsNoColumnEither) {
  Describe("llama", "llama");
  spec_.intermediate = 1;
  Add("blk.0.ffn_down.weight", kQ80, {64});
  EXPECT_THAT(ErrorOf(), HasSubstr(" has shape [64], its metadata asks for [64, 1]"));
}

TEST_F(GgufTensors, PlainColumnsAndRowsOfBlocksMayLackTheirOne) {
  Describe("llama", "llama");
  spec_.intermediate = 1;
  Add("blk.0.ffn_down.weight", kFloats, {1, 64});
  Add("blk.0.ffn_up.weight", kQ80, {64});
  EXPECT_EQ(ErrorOf(), "no error");
}

TEST_F(GgufTensors, FactorsOfMatricesArePositiveAndFinite) {
  Describe("llama", "llama");
  Add("blk.0.attn_output.weight", kNvfp4, {64, 64});
  const std::string scale = "blk.0.attn_output.scale";
  for (const float broken : {0.0f, -1.0f, INFINITY, NAN})
    EXPECT_THAT(ErrorOfFactors(scale, {broken}), HasSubstr("want positive, finite numbers"))
        << broken;
  EXPECT_THAT(ErrorOfFactors(scale, {1, 1}), HasSubstr("is F32 [2], want F32 [1]"));
  EXPECT_EQ(ErrorOfFactors(scale, {0.5f}), "no error");
}

TEST_F(GgufTensors, FactorsOfOtherTypesAreRefused) {
  Describe("llama", "llama");
  Add("blk.0.attn_output.weight", kFloats, {64, 64});
  EXPECT_THAT(ErrorOfFactors("blk.0.attn_output.scale", {1}),
              HasSubstr("'blk.0.attn_output.scale' scales a matrix in F32, want NVFP4"));
  Add("blk.0.ffn_up.weight", kQ80, {176, 64});
  EXPECT_THAT(ErrorOfFactors("blk.0.ffn_up.scale", {1}),
              HasSubstr("'blk.0.ffn_up.scale' scales a matrix in Q8_0, want NVFP4"));
}

TEST_F(GgufTensors, ABiasIsNotScaled) {
  Describe("qwen2", "qwen2");
  Add("blk.0.attn_q.bias", kFloats, {112});
  EXPECT_EQ(ErrorOfFactors("blk.0.attn_q.scale", {0.5f}), "no error");
}

// llama.cpp multiplies by them; here nothing would.
TEST_F(GgufTensors, FactorsThatNothingReadsAreRefused) {
  Describe("deepseekv2", "deepseek2");
  Add("blk.0.attn_k_b.weight", kNvfp4, {4, 48, 64});
  spec_.latent.nope_dim = 64;
  EXPECT_EQ(ErrorOf(), "no error");
  EXPECT_THAT(ErrorOfFactors("blk.0.attn_k_b.scale", {1}),
              HasSubstr("scales 'blk.0.attn_k_b.weight', whose scale Pinion does not read"));
}

TEST_F(GgufTensors, FactorsOfAnEmbeddersLayersAreRefused) {
  Describe("llama", "llama");
  Add("dense_2.weight", kNvfp4, {64, 64});
  EXPECT_EQ(ErrorOf(), "no error");
  EXPECT_THAT(ErrorOfFactors("dense_2.scale", {1}),
              HasSubstr("scales 'dense_2.weight', whose scale Pinion does not read"));
}

}  // namespace
}  // namespace pinion
