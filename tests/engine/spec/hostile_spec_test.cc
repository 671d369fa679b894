// Configs that no publisher writes: whatever a config says, it is read or refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "engine/spec/kv_tables.h"
#include "engine/spec/tensor_list.h"
#include "tests/engine/spec/configs.h"

namespace pinion {
namespace {

using ::testing::HasSubstr;

// Hostile: within every bound by itself, but days of looking for tensors.
TEST(Spec, RefusesMoreExpertsThanAnyModelHas) {
  Json config = With("qwen3moe", "num_experts", "16384");
  config.Set("num_hidden_layers", 1024);
  EXPECT_THAT(ErrorOf(config), HasSubstr("1024 layers of 16384 experts, want at most 131072"));
}

// Any config is read or refused, and one that is read describes a model of finite size.
void ExpectReadOrRefused(const Json& config) {
  const auto spec = ReadSpec(config);
  if (!spec) {
    EXPECT_FALSE(spec.error().message.empty());
    return;
  }
  EXPECT_LT(ParameterCount(*spec), uint64_t{1} << 60);
  EXPECT_LT(KvBytesPerToken(*spec, kernels::KvDtype::kF32), uint64_t{1} << 40);
}

TEST(Spec, SurvivesHostileValuesInEveryField) {
  const char* const kHostile[] = {
      "null",       "true",         "-1",    "0",    "1",       "7",
      "2147483648", "1e30",         "1e-30", "[]",   "{}",      R"("x")",
      "[0]",        R"([{"a":1}])", "0.5",   "-0.0", "1048577", R"({"rope_type":3})"};
  std::vector<Json> values;
  for (const char* hostile : kHostile) values.push_back(Json::Parse(hostile).value());
  for (const std::string& model : tests::ModelFixtures()) {
    const Json config = Config(model);
    for (const auto& [key, value] : config.object()) {
      Json changed = config;  // parsed once a model, not for each of 30,000 values
      for (const Json& hostile : values) {
        changed.Set(key, hostile);
        ExpectReadOrRefused(changed);
      }
    }
  }
}

TEST(Spec, SurvivesTruncationAndFlippedBytes) {
  std::mt19937 random(20261120);
  int read = 0;
  for (const char* model : {"llama", "qwen2", "opt"}) {
    const std::string good = Config(model).Dump();
    for (int round = 0; round < 1000; ++round) {
      std::string text = good;
      if (round % 10 == 0) text.resize(random() % text.size());
      for (size_t flips = random() % 3; flips > 0 && !text.empty(); --flips)
        text[random() % text.size()] = static_cast<char>(' ' + random() % 95);
      const auto config = Json::Parse(text);
      if (!config) continue;
      ++read;
      ExpectReadOrRefused(*config);
    }
  }
  EXPECT_GT(read, 500);
}

}  // namespace
}  // namespace pinion
