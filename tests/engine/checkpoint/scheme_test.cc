#include "engine/checkpoint/scheme.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"

namespace pinion {
namespace {

using ::testing::HasSubstr;

Result<std::optional<QuantScheme>> Read(const std::string& quantisation) {
  Json config = Json::MakeObject();
  config.Set("quantization_config", Json::Parse(quantisation).value());
  return ReadScheme(config);
}

std::string ErrorOf(const std::string& quantisation) {
  const auto scheme = Read(quantisation);
  return scheme ? "no error" : scheme.error().message;
}

std::string Compressed(const std::string& weights, const std::string& activations = "null",
                       const std::string& format = "int-quantized") {
  return R"({"quant_method": "compressed-tensors", "format": ")" + format +
         R"(", "config_groups": {"group_0": {"weights": )" + weights +
         R"(, "input_activations": )" + activations + "}}}";
}

TEST(Scheme, IsAbsentIfTheConfigHasNone) {
  EXPECT_EQ(ReadScheme(Json::MakeObject()).value(), std::nullopt);
  EXPECT_EQ(Read("null").value(), std::nullopt);
}

TEST(Scheme, ReadsTheFieldsOfEachMethod) {
  const QuantScheme awq = *Read(R"({"quant_method": "awq", "bits": 4, "group_size": 64})").value();
  EXPECT_EQ(awq.method, QuantMethod::kAwq);
  EXPECT_EQ(awq.group, 64);
  const QuantScheme gptq =
      *Read(R"({"quant_method": "gptq", "bits": 8, "group_size": -1})").value();
  EXPECT_EQ(gptq.bits, 8);
  EXPECT_TRUE(gptq.gptq_v1);
  EXPECT_FALSE(Read(R"({"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"})")
                   .value()
                   ->gptq_v1);
  const QuantScheme w8a8 =
      *Read(Compressed(R"({"num_bits": 8, "strategy": "channel"})",
                       R"({"num_bits": 8, "dynamic": true, "strategy": "token"})"))
           .value();
  EXPECT_EQ(w8a8.method, QuantMethod::kIntQuantized);
  EXPECT_EQ(w8a8.activations, ActivationRounding::kPerToken);
  EXPECT_EQ(w8a8.group, -1);
  const QuantScheme fp8 =
      *Read(R"({"quant_method": "fp8", "weight_block_size": [64, 128]})").value();
  EXPECT_EQ(fp8.method, QuantMethod::kFp8);
  EXPECT_EQ(fp8.block_rows, 64);
  EXPECT_EQ(fp8.block_columns, 128);
  EXPECT_EQ(fp8.activations, ActivationRounding::kNone);
  const QuantScheme rows =
      *Read(Compressed(R"({"num_bits": 8, "type": "float", "strategy": "channel"})",
                       R"({"num_bits": 8, "type": "float", "dynamic": true, "strategy": "token"})",
                       "float-quantized"))
           .value();
  EXPECT_EQ(rows.method, QuantMethod::kFp8);
  EXPECT_EQ(rows.block_rows, 1);
  EXPECT_EQ(rows.block_columns, 0);
  EXPECT_EQ(Read(R"({"quant_method": "mxfp4"})").value()->method, QuantMethod::kMxfp4);
  // As its tool writes it: activations in 4 bits, which are not rounded here.
  const QuantScheme nvfp4 =
      *Read(Compressed(R"({"num_bits": 4, "type": "float", "strategy": "tensor_group",
                           "group_size": 16})",
                       R"({"num_bits": 4, "type": "float", "dynamic": "local"})",
                       "nvfp4-pack-quantized"))
           .value();
  EXPECT_EQ(nvfp4.method, QuantMethod::kNvfp4);
  EXPECT_EQ(nvfp4.activations, ActivationRounding::kNone);
  EXPECT_EQ(Read(R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})").value()->method,
            QuantMethod::kNvfp4);
  const QuantScheme whole = *Read(R"({"quant_method": "modelopt", "quant_algo": "FP8"})").value();
  EXPECT_EQ(whole.method, QuantMethod::kFp8);
  EXPECT_EQ(whole.block_rows, 0);
}

// What FP8 schemes ask of activations: how they get their scale, and how many share one (0: all).
TEST(Scheme, ReadsHowFp8RoundsActivations) {
  const auto asks = [](const std::string& text, ActivationRounding how, int64_t group) {
    const QuantScheme scheme = Read(text).value().value();
    EXPECT_EQ(scheme.method, QuantMethod::kFp8);
    EXPECT_EQ(scheme.activations, how) << text;
    EXPECT_EQ(scheme.activation_group, group) << text;
  };
  const auto published = [](const std::string& fields) {
    return R"({"quant_method": "fp8", "fmt": "e4m3")" + fields + "}";
  };
  const auto floats = [](const std::string& activations) {
    return Compressed(R"({"num_bits": 8, "type": "float"})",
                      R"({"num_bits": 8, "type": "float", )" + activations + "}",
                      "float-quantized");
  };
  using enum ActivationRounding;
  asks(published(R"(, "activation_scheme": "dynamic", "weight_block_size": [64, 128])"), kPerToken,
       128);
  asks(published(R"(, "activation_scheme": "dynamic", "weight_block_size": null)"), kPerToken, 0);
  asks(published(R"(, "activation_scheme": "static")"), kStatic, 0);
  for (const auto& [scales, powers] : {std::pair{"null", false}, std::pair{R"("ue8m0")", true}}) {
    const std::string text =
        published(StrCat(R"(, "activation_scheme": "dynamic", "scale_fmt": )", scales));
    const QuantScheme scheme = Read(text).value().value();
    EXPECT_EQ(scheme.activation_powers, powers) << text;
  }
  asks(published(R"(, "activation_scheme": null)"), kNone, 0);
  asks(R"({"quant_method": "fp8", "fmt": "float8_e4m3fn", "activation_scheme": "static"})", kStatic,
       0);
  asks(published(""), kNone, 0);
  asks(floats(R"("dynamic": true, "strategy": "token")"), kPerToken, 0);
  asks(floats(R"("dynamic": true, "strategy": "group", "group_size": 64)"), kPerToken, 64);
  asks(floats(R"("dynamic": false, "strategy": "tensor")"), kStatic, 0);
  asks(floats(R"("dynamic": null)"), kStatic, 0);
  asks(R"({"quant_method": "modelopt", "quant_algo": "FP8"})", kStatic, 0);
  // These are not computed: one scale for all tokens of a step would depend on the others.
  asks(floats(R"("dynamic": true, "strategy": "tensor")"), kNone, 0);
  asks(floats(R"("dynamic": true, "strategy": "token", "symmetric": false)"), kNone, 0);
  for (const char* other : {"null", R"({"num_bits": 8, "type": "int", "dynamic": true})",
                            R"({"num_bits": 4, "type": "float", "dynamic": "local"})"})
    asks(Compressed(R"({"num_bits": 8, "type": "float"})", other, "float-quantized"), kNone, 0);
}

TEST(Scheme, ReadsListsOfExceptionsAndTheTypeOfIntegers) {
  EXPECT_EQ(ErrorOf(R"({"quant_method": "awq", "modules_to_not_convert": null})"), "no error");
  EXPECT_EQ(ErrorOf(R"({"quant_method": "awq", "modules_to_not_convert": ["lm_head"]})"),
            "no error");
  EXPECT_EQ(ErrorOf(Compressed(R"({"num_bits": 8, "type": "int"})")), "no error");
}

TEST(Scheme, RefusesFieldsOfAnotherTypeByName) {
  for (const char* value : {"-1", "{}", "[1]", R"("lm_head")"}) {
    for (const char* key : {"modules_to_not_convert", "ignore"})
      EXPECT_THAT(ErrorOf(StrCat(R"({"quant_method": "awq", ")", key, R"(": )", value, "}")),
                  HasSubstr(StrCat("'", key, "' of the quantisation is")))
          << value;
  }
  for (const char* type : {"-1", "{}", R"("float")"})
    EXPECT_THAT(ErrorOf(Compressed(StrCat(R"({"num_bits": 8, "type": )", type, "}"))),
                HasSubstr("'type'"))
        << type;
}

struct Refusal {
  std::string quantisation, says;
};
void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.says; }

class RefusedScheme : public ::testing::TestWithParam<Refusal> {};

std::string Transformed(const std::string& location) {
  return R"({"quant_method": "compressed-tensors", "format": "int-quantized", "transform_config":
             {"config_groups": {"R1": {"type": "hadamard", "apply": [{"location": ")" +
         location + R"("}]}}}, "config_groups": {"group_0": {"weights": {"num_bits": 8}}}})";
}

TEST(Scheme, RotationsInsideWeightsAreFine) {
  EXPECT_EQ(ErrorOf(Transformed("weight_output")), "no error");
}

TEST_P(RefusedScheme, IsNamedInTheError) {
  EXPECT_THAT(ErrorOf(GetParam().quantisation), HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Scheme, RefusedScheme,
    ::testing::Values(
        Refusal{"7", "'quantization_config' is an integer"},
        Refusal{R"({"quant_method": "bnb"})",
                "'bnb', want compressed-tensors, awq, gptq, fp8, modelopt or mxfp4"},
        Refusal{R"({"quant_method": "awq", "version": "gemv"})", "'gemv', want gemm"},
        Refusal{R"({"quant_method": "awq", "bits": 3})", "'3', want 4"},
        Refusal{R"({"quant_method": "gptq", "bits": 2})", "'2', want 4 or 8"},
        Refusal{R"({"quant_method": "gptq"})", "'bits'"},
        Refusal{R"({"quant_method": "gptq", "bits": 4, "group_size": 0})", "'0', want -1"},
        Refusal{R"({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"})", "marlin"},
        Refusal{R"({"quant_method": "compressed-tensors"})", "exactly one group"},
        Refusal{R"({"quant_method": "fp8", "fmt": "e5m2"})", "'e5m2', want e4m3"},
        Refusal{R"({"quant_method": "fp8", "weight_block_size": [128]})", "'weight_block_size'"},
        Refusal{R"({"quant_method": "fp8", "activation_scheme": "token"})",
                "'token', want dynamic or static"},
        Refusal{R"({"quant_method": "fp8", "activation_scheme": true})", "'activation_scheme'"},
        Refusal{R"({"quant_method": "fp8", "activation_scheme": "dynamic", "scale_fmt": "e5m2"})",
                "'e5m2', want ue8m0"},
        Refusal{R"({"quant_method": "fp8", "weight_block_size": [128, 0]})", "two numbers from 1"},
        Refusal{Compressed(R"({"num_bits": 4})", "null", "mxfp4-pack-quantized"), "'mxfp4-pack"},
        Refusal{Compressed(R"({"num_bits": 8, "type": "float"})", "null", "nvfp4-pack-quantized"),
                "'float8', want float4"},
        Refusal{Compressed(R"({"num_bits": 4, "type": "float", "group_size": 32})", "null",
                           "nvfp4-pack-quantized"),
                "'32', want 16"},
        Refusal{R"({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"})",
                "'FP8_PB_WO', want NVFP4, W4A16_NVFP4 or FP8"},
        Refusal{R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 32})",
                "'32', want 16"},
        Refusal{Compressed(R"({"num_bits": 4, "type": "float"})", "null", "float-quantized"),
                "float8"},
        Refusal{Compressed(R"({"num_bits": 8, "strategy": "group"})", "null", "float-quantized"),
                "'group', want channel, tensor or block"},
        Refusal{Compressed("3"), "'weights'"},
        Refusal{Transformed("input"), "'transform_config' of the quantisation is 'input'"},
        Refusal{Compressed(R"({"num_bits": 4})"), "'4', want 8"},
        Refusal{Compressed(R"({"num_bits": 8, "strategy": "block"})"), "'block'"},
        Refusal{Compressed(R"({"num_bits": 8})", R"({"num_bits": 4, "dynamic": true})"), "int8"},
        Refusal{Compressed(R"({"num_bits": 8})",
                           R"({"num_bits": 8, "dynamic": true, "strategy": "tensor"})"),
                "per token"}));

}  // namespace
}  // namespace pinion
