// Positions as config.json describes them: ropes, which layers have which, and scales of queries.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/base/strings.h"
#include "tests/engine/spec/configs.h"

namespace pinion {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Of the first rope at the model's full length.
std::vector<float> Frequencies(const DecoderSpec& spec) {
  return RopeFrequencies(spec.ropes.at(0), spec.max_positions);
}

// Numbers from transformers' formulas, computed apart.
TEST(Rope, StretchesLlama3Frequencies) {
  const std::vector<float> want = {1.0f,          0.07940301f,   0.004700754f,  0.0009115831f,
                                   0.0001767767f, 3.428102e-05f, 6.647870e-06f, 1.289173e-06f};
  const auto got = Frequencies(SpecOf("llama"));
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-6 * want[i]) << i;
}

TEST(Rope, ReadsRopeOfBothLayouts) {
  const auto plain = Frequencies(SpecOf("llama2"));
  EXPECT_FLOAT_EQ(plain[1], std::pow(10000.0, -2.0 / 32));
  const Json v5 =
      Json::Parse(R"({"rope_theta": 10000.0, "rope_type": "linear", "factor": 4})").value();
  Json config = Config("llama2");
  config.Set("rope_parameters", v5);
  const DecoderSpec stretched = ReadSpec(config).value();
  EXPECT_FLOAT_EQ(Frequencies(stretched)[1], plain[1] / 4);
  EXPECT_EQ(stretched.max_positions, 2048);
  const auto v4 = With("llama2", "rope_scaling", R"({"type": "linear", "factor": 4.0})");
  EXPECT_EQ(Frequencies(ReadSpec(v4).value()), Frequencies(stretched));
}

TEST(Rope, RefusesRopeItCannotCompute) {
  EXPECT_THAT(
      ErrorOf(With("llama2", "rope_scaling", R"({"type": "cubic", "factor": 4.0})")),
      AllOf(HasSubstr("'cubic'"), HasSubstr("default, linear, dynamic, llama3, yarn, longrope")));
  EXPECT_THAT(ErrorOf(With("llama2", "rope_scaling", R"({"type": "linear"})")),
              HasSubstr("'factor'"));
  EXPECT_THAT(ErrorOf(With("llama2", "rope_scaling", R"({"type": "linear", "factor": 1e300})")),
              HasSubstr("'factor'"));
  EXPECT_THAT(ErrorOf(With("llama2", "rope_theta", "0")), HasSubstr("'rope_theta'"));
  EXPECT_THAT(ErrorOf(With("llama2", "rope_scaling", "[1]")), HasSubstr("rope parameters"));
  EXPECT_THAT(ErrorOf(With("llama2", "rope_scaling",
                           R"({"type": "llama3", "factor": 8, "low_freq_factor": 4,
                               "high_freq_factor": 3, "original_max_position_embeddings": 64})")),
              HasSubstr("'high_freq_factor'"));
  EXPECT_THAT(ErrorOf(With("llama2", "rope_scaling",
                           R"({"rope_type": "default", "partial_rotary_factor": 0.1})")),
              HasSubstr("partial_rotary_factor"));
}

// Llama 4 Scout: no wave is blended.
TEST(Rope, Llama3RopeMayBlendNothing) {
  const auto with = [](const char* factor) {
    return Frequencies(ReadSpec(With("llama2", "rope_scaling",
                                     StrCat(R"({"type": "llama3", "factor": )", factor,
                                            R"(, "low_freq_factor": 1, "high_freq_factor": 1,
                                 "original_max_position_embeddings": 64})")
                                         .c_str()))
                           .value());
  };
  const auto plain = with("1"), slowed = with("16");
  for (size_t i = 0; i < plain.size(); ++i)
    EXPECT_FLOAT_EQ(slowed[i], plain[i] * 64 > 2 * 3.14159265f ? plain[i] : plain[i] / 16) << i;
}

TEST(Rope, RotatesAPartOfTheHead) {
  const DecoderSpec spec =
      ReadSpec(With("llama2", "rope_scaling",
                    R"({"rope_type": "default", "partial_rotary_factor": 0.5})"))
          .value();
  EXPECT_EQ(spec.head_dim, 32);
  EXPECT_EQ(spec.ropes.at(0).dim, 16);
  EXPECT_FLOAT_EQ(Frequencies(spec)[1], std::pow(10000.0, -2.0 / 16));
}

// base * (factor * length / original - (factor - 1))^(dim / (dim - 2)) beyond the original length.
TEST(Rope, StretchesDynamicallyByTheServedLength) {
  const DecoderSpec spec =
      ReadSpec(With("llama2", "rope_scaling", R"({"type": "dynamic", "factor": 4.0})")).value();
  EXPECT_EQ(spec.max_positions, 2048);
  const RopeSpec& rope = spec.ropes.at(0);
  EXPECT_FLOAT_EQ(RopeFrequencies(rope, 512)[1], std::pow(10000.0, -2.0 / 32));
  const double base = 10000 * std::pow(4.0 * 1024 / 512 - 3, 32.0 / 30);
  EXPECT_FLOAT_EQ(RopeFrequencies(rope, 1024)[1], std::pow(base, -2.0 / 32));
}

TEST(Rope, TakesTheLongFactorsBeyondTheOriginalLength) {
  const DecoderSpec spec = SpecOf("phi3-longrope");
  const RopeSpec& rope = spec.ropes.at(0);
  EXPECT_EQ(rope.type, "longrope");
  EXPECT_NEAR(rope.scale, std::sqrt(1 + std::log(512.0 / 4) / std::log(4.0)), 1e-12);
  const double plain = std::pow(10000.0, -2.0 / 64);
  EXPECT_FLOAT_EQ(RopeFrequencies(rope, 4)[1], plain / rope.short_factors[1]);
  EXPECT_FLOAT_EQ(RopeFrequencies(rope, 5)[1], plain / rope.long_factors[1]);
  EXPECT_NE(rope.short_factors[1], rope.long_factors[1]);
}

TEST(Rope, LengthsOfEqualFrequenciesAreTheSame) {
  RopeSpec dynamic = SpecOf("llama2").ropes.at(0), longrope = SpecOf("phi3-longrope").ropes.at(0);
  dynamic.type = "dynamic";
  dynamic.factor = 4;
  dynamic.original_positions = 512;
  for (const RopeSpec& rope : {SpecOf("llama").ropes.at(0), dynamic, longrope})
    for (const int a : {1, 4, 5, 511, 512, 513, 2048})
      for (const int b : {1, 4, 5, 511, 512, 513, 2048})
        EXPECT_EQ(SameFrequencies(rope, a) == SameFrequencies(rope, b),
                  RopeFrequencies(rope, a) == RopeFrequencies(rope, b))
            << rope.type << ' ' << a << ' ' << b;
  EXPECT_EQ(SameFrequencies(longrope, 4), "up to 4");
  EXPECT_EQ(SameFrequencies(longrope, 2048), "above 4");
  EXPECT_EQ(SameFrequencies(dynamic, 2048), "2048");
}

std::vector<int> Ropes(const DecoderSpec& spec) {
  std::vector<int> ropes;
  for (const LayerSpec& layer : spec.layer_specs) ropes.push_back(layer.rope);
  return ropes;
}

// The architecture's own rule, which the fixtures leave out.
TEST(Rope, RotatesTheLayersThatEachFamilyRotates) {
  EXPECT_THAT(Ropes(SpecOf("smollm3")), ElementsAre(0, 0, 0, -1));
  Json config = With("smollm3", "no_rope_layers", "null");
  config.Set("no_rope_layer_interval", 2);
  EXPECT_THAT(Ropes(ReadSpec(config).value()), ElementsAre(0, -1, 0, -1));
  EXPECT_THAT(Ropes(SpecOf("exaone4")), ElementsAre(0, 0, 0, -1));
  config = With("exaone4", "layer_types", "null");
  config.Set("sliding_window_pattern", "LG");
  config.Set("sliding_window", nullptr);
  EXPECT_THAT(Ropes(ReadSpec(config).value()), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(Ropes(SpecOf("cohere2")), ElementsAre(0, 0, 0, -1));
}

// As transformers 4 writes it, the scaling is the full layers' alone.
TEST(Rope, StretchesTheRopeOfOlmo3sFullLayersOnly) {
  Json config = With("olmo3", "rope_parameters", "null");
  config.Set("rope_theta", 3e5);
  config.Set("rope_scaling", Json::Parse(R"({"rope_type": "yarn", "factor": 8.0})").value());
  const DecoderSpec spec = ReadSpec(config).value();
  ASSERT_EQ(spec.ropes.size(), 2u);
  EXPECT_EQ(spec.ropes[0].type, "yarn");
  EXPECT_EQ(spec.ropes[1].type, "default");
  EXPECT_EQ(spec.ropes[1].theta, 3e5);
  EXPECT_THAT(Ropes(spec), ElementsAre(1, 1, 1, 0));
}

// HunYuan's 'alpha' makes one base of every length.
TEST(Rope, StretchesTheBaseOfHunYuan) {
  const DecoderSpec spec = SpecOf("hunyuan");
  EXPECT_EQ(spec.ropes.at(0).type, "default");
  EXPECT_NEAR(spec.ropes.at(0).theta, 1e4 * std::pow(1000, 32.0 / 30), 1e-3);
  EXPECT_EQ(spec.max_positions, 2048);
}

TEST(Rope, GivesWindowedLayersOfGemma3TheirOwnRope) {
  const DecoderSpec spec = SpecOf("gemma3");
  ASSERT_EQ(spec.ropes.size(), 2u);
  EXPECT_EQ(spec.ropes[0].theta, 1e6);
  EXPECT_EQ(spec.ropes[1].theta, 1e4);
  EXPECT_EQ(spec.layer_specs[0].rope, 1);
  EXPECT_EQ(spec.layer_specs[5].rope, 0);
  Json old = With("gemma3", "rope_parameters", "null");  // as transformers 4 has it
  old.Set("rope_theta", 2e6);
  old.Set("rope_local_base_freq", 5000.0);
  old.Set("rope_scaling", Json::Parse(R"({"factor": 8.0, "rope_type": "linear"})").value());
  const DecoderSpec stretched = ReadSpec(old).value();
  EXPECT_EQ(stretched.ropes[0].theta, 2e6);
  EXPECT_EQ(stretched.ropes[0].factor, 8);
  EXPECT_EQ(stretched.ropes[1].theta, 5000);
  EXPECT_EQ(stretched.max_positions, 512);
}

TEST(Rope, ScalesQueriesByTheLogarithmOfWholeLengths) {
  const QueryScale scale = SpecOf("ministral3").query_scale;
  EXPECT_EQ(scale.At(0), 1);
  EXPECT_EQ(scale.At(63), 1);
  EXPECT_FLOAT_EQ(scale.At(64), static_cast<float>(1 + 0.1 * std::log(2)));
  EXPECT_FLOAT_EQ(scale.At(255), static_cast<float>(1 + 0.1 * std::log(4)));
  EXPECT_EQ((QueryScale{1, 64, 1}.At(62)), 1);
  EXPECT_GT((QueryScale{1, 64, 1}.At(63)), 1);
  EXPECT_EQ(SpecOf("llama").query_scale.At(1 << 20), 1);
}

}  // namespace
}  // namespace pinion
