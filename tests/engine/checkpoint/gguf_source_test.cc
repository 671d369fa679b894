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
  Result<std::unique_ptr<TensorSource>> Open() const {
    auto file = TemporaryFile::Make("a test").value();
    EXPECT_TRUE(file.Write(data_ + std::string(64, '\0')));
    const auto mapped = MappedFile::Open(file.path()).value();
    return OpenGgufTensors(std::make_shared<const GgufFile>(GgufFile{{mapped}, header_}), spec_);
  }
  std::string ErrorOf() const {
    const auto opened = Open();
    return opened ? "no error" : opened.error().message;
  }
  // Of what is read from the tensors before they are opened.
  std::string ErrorOfSpec() const {
    DecoderSpec spec = spec_;
    const auto applied = ApplyGguf({{}, header_}, spec);
    return applied ? "no error" : applied.error().message;
  }
  // A row of a tensor that is shown in float32.
  std::vector<float> RowOf(const std::string& name, size_t row) const {
    const auto source = Open().value();
    const TensorInfo info = source->Find(name).value();
    EXPECT_EQ(info.dtype, kernels::Dtype::kF32);
    std::vector<std::byte> scratch;
    std::vector<float> values(info.shape.size() < 2 ? 1 : RowElements(info.shape));
    std::memcpy(values.data(), source->Rows(info, row, 1, scratch), values.size() * sizeof(float));
    return values;
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

TEST_F(GgufTensors, AVectorOfBlocksIsNotAColumnEither) {
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

// As a matrix it would have as many columns as rows.
TEST_F(GgufTensors, AVectorOfBlocksIsRefused) {
  Describe("llama", "llama");
  Add("blk.0.attn_norm.weight", kQ80, {64});
  EXPECT_THAT(ErrorOf(), HasSubstr("tensor 'blk.0.attn_norm.weight' of "));
  EXPECT_THAT(ErrorOf(),
              HasSubstr(" is Q8_0: a tensor that is not a matrix must be F32, F16 or BF16"));
}

TEST_F(GgufTensors, ABiasOfBlocksBehindThePoolingIsRefused) {
  Describe("llama", "llama");
  Add("dense_2.weight", kFloats, {64, 64});
  Add("dense_2.bias", kQ80, {64});
  EXPECT_THAT(ErrorOf(), HasSubstr("tensor 'dense_2.bias' of "));
}

// The lists of tensors would name each of them, however many the metadata asks for.
TEST_F(GgufTensors, ExpertsThatTheFileLacksAreRefusedBeforeTheyAreListed) {
  Describe("mixtral", "llama");
  ASSERT_EQ(spec_.layers, 2);
  Add("blk.0.ffn_down_exps.weight", kFloats, {4, 96, 112});
  EXPECT_EQ(ErrorOfSpec(),
            "there is no tensor 'blk.1.ffn_down_exps.weight', want one of 4 experts");
  Add("blk.1.ffn_down_exps.weight", kFloats, {3, 96, 112});
  EXPECT_EQ(ErrorOfSpec(),
            "tensor 'blk.1.ffn_down_exps.weight' holds 3 experts, its metadata asks for 4");
  spec_.layer_specs[1].mlp = MlpKind::kDense;
  EXPECT_EQ(ErrorOfSpec(), "no error");
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

// Two key heads with two value heads each, which the file holds in the order 0, 2, 1, 3.
class TiledValueHeads : public GgufTensors {
 protected:
  void SetUp() override {
    Describe("qwen3.5", "qwen35");
    ASSERT_EQ(spec_.delta.key_heads, 2);
    ASSERT_EQ(spec_.delta.value_heads, 4);
  }
  // 64 rows of four blocks of 32 weights each, with these scales in float16 and codes.
  void AddOutputs(const std::vector<uint16_t>& scales, const std::vector<char>& codes) {
    spec_.delta.value_dim = 32;
    std::string row;
    for (size_t block = 0; block < 4; ++block) {
      row.append(reinterpret_cast<const char*>(&scales[block]), sizeof(uint16_t));
      row += std::string(32, codes[block]);
    }
    std::string rows;
    for (int i = 0; i < 64; ++i) rows += row;
    Add("blk.0.ssm_out.weight", kQ80, {64, 128}, rows);
  }
  static std::vector<float> Repeated(const std::vector<float>& of_blocks) {
    std::vector<float> values;
    for (const float value : of_blocks) values.insert(values.end(), 32, value);
    return values;
  }

  const std::string module_ = "model.layers.0.linear_attn.";
};

constexpr uint16_t kOne = 0x3C00, kTwo = 0x4000, kFour = 0x4400, kEight = 0x4800;

TEST_F(TiledValueHeads, BlocksOfInputsComeInTheOrderOfTheModel) {
  AddOutputs({kTwo, kTwo, kTwo, kTwo}, {0, 1, 2, 3});
  EXPECT_EQ(RowOf(module_ + "out_proj.weight", 63), Repeated({0, 4, 2, 6}));
}

TEST_F(TiledValueHeads, ScalesOfInputsMoveWithThem) {
  AddOutputs({kOne, kTwo, kFour, kEight}, {1, 1, 1, 1});
  EXPECT_EQ(RowOf(module_ + "out_proj.weight", 0), Repeated({1, 4, 2, 8}));
}

TEST_F(TiledValueHeads, BlocksThatTwoHeadsShareAreRefused) {
  Add("blk.0.ssm_out.weight", kQ80, {64, 64});  // heads of 16
  EXPECT_THAT(ErrorOf(), HasSubstr(" is Q8_0, 32 of whose weights share a scale, but 16 belong to "
                                   "a head; want a multiple"));
}

TEST_F(TiledValueHeads, DecaysAreLogarithmsOfTheFilesValues) {
  AddFloats("blk.0.ssm_a", {-1, -2, -4, 0});
  EXPECT_EQ(RowOf(module_ + "A_log", 0)[0], 0);
  EXPECT_FLOAT_EQ(RowOf(module_ + "A_log", 1)[0], std::log(4.0f));
  EXPECT_FLOAT_EQ(RowOf(module_ + "A_log", 2)[0], std::log(2.0f));
  EXPECT_EQ(RowOf(module_ + "A_log", 3)[0], -INFINITY);  // decays that are too slow for a float
}

TEST_F(TiledValueHeads, DecaysAreNeverAboveZero) {
  for (const float broken : {0.5f, NAN})
    EXPECT_THAT(ErrorOfFactors("blk.0.ssm_a", {-1, broken, -1, -1}),
                HasSubstr("tensor 'blk.0.ssm_a' of "))
        << broken;
  EXPECT_THAT(ErrorOfFactors("blk.0.ssm_a", {-1, 0.5f, -1, -1}),
              HasSubstr(" holds 0.5, want 0 or less"));
  Add("blk.0.ssm_a", kQ80, {32});
  spec_.delta.value_heads = 32;
  EXPECT_THAT(ErrorOf(), HasSubstr(" is Q8_0: a tensor that is not a matrix must be F32"));
}

// They are vectors of Gemma 4's router, which are called as the factors of matrices in NVFP4 are.
TEST_F(GgufTensors, FactorsThatTheModelHasItselfScaleNoMatrix) {
  Describe("gemma4-moe", "gemma4");
  Add("blk.0.ffn_gate_inp.weight", kFloats, {8, 64});
  EXPECT_EQ(ErrorOfFactors("blk.0.ffn_gate_inp.scale", std::vector<float>(64, -1)), "no error");
}

}  // namespace
}  // namespace pinion
