#include "engine/quant/scheme.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
}

struct Refusal {
  std::string quantisation, says;
};
void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.says; }

class RefusedScheme : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedScheme, IsNamedInTheError) {
  EXPECT_THAT(ErrorOf(GetParam().quantisation), HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Scheme, RefusedScheme,
    ::testing::Values(
        Refusal{"7", "'quantization_config' is an integer"},
        Refusal{R"({"quant_method": "fp8"})", "'fp8', want compressed-tensors, awq or gptq"},
        Refusal{R"({"quant_method": "awq", "version": "gemv"})", "'gemv', want gemm"},
        Refusal{R"({"quant_method": "awq", "bits": 3})", "'3', want 4"},
        Refusal{R"({"quant_method": "gptq", "bits": 2})", "'2', want 4 or 8"},
        Refusal{R"({"quant_method": "gptq"})", "'bits'"},
        Refusal{R"({"quant_method": "gptq", "bits": 4, "group_size": 0})", "'0', want -1"},
        Refusal{R"({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"})", "marlin"},
        Refusal{R"({"quant_method": "compressed-tensors"})", "exactly one group"},
        Refusal{Compressed(R"({"num_bits": 8})", "null", "float-quantized"), "float-quantized"},
        Refusal{Compressed("3"), "'weights'"},
        Refusal{Compressed(R"({"num_bits": 4})"), "'4', want 8"},
        Refusal{Compressed(R"({"num_bits": 8, "strategy": "block"})"), "'block'"},
        Refusal{Compressed(R"({"num_bits": 8})", R"({"num_bits": 4, "dynamic": true})"), "int8"},
        Refusal{Compressed(R"({"num_bits": 8})",
                           R"({"num_bits": 8, "dynamic": true, "strategy": "tensor"})"),
                "per token"}));

}  // namespace
}  // namespace pinion
