#include "engine/weights/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "engine/weights/formats.h"
#include "engine/weights/weights.h"
#include "tests/test_data.h"

namespace pinion {
namespace {

using ::testing::HasSubstr;

Json Summary(const std::string& model) {
  const auto files = FindModel(model).value();
  return SummariseModel(files, *OpenWeights(files).value());
}

TEST(Summary, CountsTheTensorsOfACheckpoint) {
  const Json json = Summary(StrCat(tests::TestData(), "/models/llama"));
  EXPECT_EQ(json.Find("parameters")->integer(), 175552);
  EXPECT_EQ(json.Find("weight_bytes")->Find("bfloat16")->integer(), 351104);
  EXPECT_EQ(json.Find("kv_bytes_per_token")->Find("float32")->integer(), 768);
  EXPECT_EQ(json.Find("kv_bytes_per_token")->Find("int8")->integer(), 768 / 4 * 18 / 16);
  EXPECT_EQ(json.Find("stored")->Find("bytes")->Dump(), R"({"bfloat16":351104})");
  EXPECT_EQ(json.Find("stored")->Find("files")->array().size(), 4u);
  EXPECT_EQ(json.Find("tensors")->array().size(), 29u);
}

TEST(Summary, ShowsEveryParameterOfTheMathematics) {
  const auto files = FindModel(StrCat(tests::TestData(), "/models/gemma2")).value();
  const auto weights = OpenWeights(files).value();
  const std::string text = FormatModel(files, *weights);
  for (const char* said :
       {"gated GELU (tanh)", "before and after each sublayer", "times 1 + the stored weight",
        "scores divided by sqrt(64)", "base 10,000, 64 elements", "16 tokens in 2 of 4 layers",
        "embeddings times 8, attention scores capped at 50, logits capped at 30"})
    EXPECT_THAT(text, HasSubstr(said));
  const Json json = SummariseModel(files, *weights);
  EXPECT_EQ(json.Find("windows")->Dump(), "[16,0,16,0]");
  EXPECT_EQ(json.Find("norm_offset")->number(), 1);
  EXPECT_EQ(json.Find("qk_norm")->string(), "none");
  EXPECT_EQ(json.Find("ropes")->array().size(), 1u);
}

TEST(Summary, CountsWeightsAsTheyAreStored) {
  const auto bytes = [](const char* name, const char* format) {
    const auto files = FindModel(StrCat(tests::TestData(), "/quantised/", name)).value();
    const Json json = SummariseModel(files, *OpenWeights(files).value());
    const Json* stored = json.Find("stored")->Find("bytes")->Find(format);
    return stored ? stored->integer() : 0;
  };
  // Two layers of q, k, v, o: 2 x 256 x 256 + 2 x 128 x 256, and three matrices of 384 x 256.
  // Their scales, for each 128 x 128 weights: 2 x 4 + 2 x 2 and 3 x 6, in bfloat16.
  EXPECT_EQ(bytes("qwen3-fp8", "FP8"), 2 * (196608 + 3 * 384 * 256) + 2 * 30 * 2);
  // Two layers of four experts, 192 outputs of 96 inputs in all: 17 bytes for 32 weights.
  EXPECT_EQ(bytes("gptoss-mxfp4", "MXFP4"), 2 * 4 * (128 * 96 + 96 * 64) / 32 * 17);
}

// GPT-OSS's experts stay in 4.25 bits: `model info` counts what a rank's mapping holds.
TEST(Summary, CountsMxfp4InFourAndAQuarterBits) {
  const auto files = FindModel(StrCat(tests::TestData(), "/quantised/gptoss-mxfp4")).value();
  const FormatPlan formats = PlanFormats(files.spec, *OpenWeights(files).value(), files.scheme,
                                         {kernels::Dtype::kBf16, IntegerProduct::kInt8})
                                 .value();
  const auto bytes = [&](bool prepacked) {
    return ShardWeightBytes(files.spec, formats, prepacked, 1, 0);
  };
  const uint64_t experts = bytes(true) - bytes(false);
  // Two layers of four experts: 128 outputs of 96 inputs and 96 (two blocks of 64) of 64; 8 bytes
  // beside each output.
  const uint64_t outputs = 128 + 128, weights = 128 * 96 + 128 * 64;
  EXPECT_EQ(experts, 2 * 4 * (weights * 17 / 32 + outputs * 8));
}

// A linear of any model in NVFP4 stays in 4.5.
TEST(Summary, CountsNvfp4InFourAndAHalfBits) {
  const auto files = FindModel("preset:tiny:nvfp4").value();
  const auto source = OpenWeights(files).value();
  const FormatPlan formats =
      PlanFormats(files.spec, *source, files.scheme, {kernels::Dtype::kBf16, IntegerProduct::kInt8})
          .value();
  const auto bytes = [&](const FormatPlan& plan) {
    return ShardWeightBytes(files.spec, plan, true, 1, 0);
  };
  // Two layers: 128 outputs of q, k and v, 64 of o and 352 of gate and up (in blocks of 64: 384),
  // of 64 inputs; 64 of down, of 176 inputs.
  const uint64_t outputs = 128 + 64 + 384, weights = outputs * 64 + 64 * 176;
  // In bfloat16 inputs are padded to 192, a multiple of 32.
  EXPECT_EQ(bytes(kernels::Dtype::kBf16) - bytes(formats),
            2 * ((outputs * 64 + 64 * 192) * 2 - weights * 9 / 16 - (outputs + 64) * 8));
  EXPECT_THAT(FormatModel(files, *source, formats), HasSubstr("8 matrices in 4 bits"));
}

// FP8 takes a byte a weight in every type that an engine computes in, and a float for each output
// and 128 inputs.
TEST(Summary, CountsFp8InEightBits) {
  const auto files = FindModel(StrCat(tests::TestData(), "/quantised/qwen3-fp8")).value();
  const auto source = OpenWeights(files).value();
  const auto bytes = [&](const FormatPlan& formats) {
    return ShardWeightBytes(files.spec, formats, true, 1, 0);
  };
  // Two layers: 512 outputs of q, k and v and 768 of gate and up, of 256 inputs; 256 of o and of
  // down, of 256 and of 384.
  const uint64_t weights = (512 + 768 + 256) * 256 + 256 * 384;
  const uint64_t scales = (512 + 768 + 256) * 2 + 256 * 3, outputs = 512 + 768 + 256 + 256;
  for (const auto dtype : {kernels::Dtype::kBf16, kernels::Dtype::kF32})
    EXPECT_EQ(
        bytes(dtype) - bytes(PlanFormats(files.spec, *source, files.scheme, {dtype, {}}).value()),
        2 * (weights * (kernels::SizeOf(dtype) - 1) - scales * 4 - outputs * 8));
}

TEST(Summary, NamesThePartsLeftOutOfAWrapper) {
  auto files = FindModel(StrCat(tests::TestData(), "/models/gemma3")).value();
  files.spec.wrapper = "Gemma3ForConditionalGeneration";
  EXPECT_THAT(FormatModel(files, *OpenWeights(files).value()),
              HasSubstr("Gemma3ForConditionalGeneration: only the language model is loaded"));
}

TEST(Summary, ShowsLayersOnce) {
  const auto files = FindModel("preset:llama-3.1-8b").value();
  const std::string text = FormatModel(files, *OpenWeights(files).value());
  EXPECT_THAT(text, HasSubstr("8,030,261,248"));
  EXPECT_THAT(text, HasSubstr("model.layers.*.mlp.up_proj.weight"));
  EXPECT_THAT(text, HasSubstr("14336 x 4096"));
  EXPECT_THAT(text, HasSubstr("128 KiB"));  // of KV per token, as the model's own documents say
  EXPECT_THAT(text, ::testing::Not(HasSubstr("layers.1.")));
}

}  // namespace
}  // namespace pinion
