#include "engine/checkpoint/config_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "engine/base/strings.h"

namespace pinion {
namespace {

using ::testing::HasSubstr;

Result<Json> ParseAsConfig(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/pinion_config_json_test.json";
  std::ofstream(path) << text;
  return ParseConfigFile(path);
}

// Published Nemotron-H configs have "time_step_limit": [0.0, Infinity].
TEST(ParseConfigFile, TakesTheNumbersThatPythonWrites) {
  const auto config = ParseAsConfig(R"({"limit": [0.0, Infinity], "low": -Infinity, "n": NaN})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(*config, *Json::Parse(R"({"limit": [0.0, {"__float__": "Infinity"}],
                                      "low": {"__float__": "-Infinity"},
                                      "n": {"__float__": "NaN"}})"));
}

TEST(ParseConfigFile, LeavesTextsAlone) {
  const std::string text = R"({"name": "to Infinity \" and NaN", "Infinity": 1, "x": Infinity})";
  const auto config = ParseAsConfig(text);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->Find("name")->string(), "to Infinity \" and NaN");
  EXPECT_EQ(config->Find("Infinity")->integer(), 1);
}

TEST(ParseConfigFile, ErrorsAreThoseOfTheFile) {
  for (const char* bad : {"{", "{\"a\": Infinit}", "{\"a\": \"\\", "{\"a\": InfinityInfinity}"}) {
    const auto config = ParseAsConfig(bad);
    ASSERT_FALSE(config) << bad;
    EXPECT_THAT(config.error().message, HasSubstr("pinion_config_json_test.json"));
  }
}

}  // namespace
}  // namespace pinion
