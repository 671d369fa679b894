#include "engine/run/config_agreement.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/engine/comm/thread_world.h"

namespace pinion {
namespace {

// The error of each of the processes with these configurations; empty if they agree.
std::vector<std::string> ToldOfConfigs(const std::vector<const char*>& configs) {
  std::vector<std::string> told(configs.size());
  testing::ThreadWorld(configs.size()).Run([&](Communicator& world) {
    const Json own = Json::Parse(configs[world.process()]).value();
    const Status agreed = AgreeOnConfig(world, "config.json", own);
    if (agreed) return;
    EXPECT_EQ(agreed.error().code, ErrorCode::kUsage);
    told[world.process()] = agreed.error().message;
  });
  return told;
}

void ExpectRefused(const std::vector<const char*>& configs, const std::string& what) {
  for (const std::string& told : ToldOfConfigs(configs))
    EXPECT_EQ(told,
              "the processes differ: " + what + "; have the same files of the model on all hosts");
}

constexpr const char* kUsual =
    R"({"rms_norm_eps": 1e-6, "rope": {"theta": 10000.0}, "kinds": ["full", "full"], "heads": 4})";

TEST(AgreeOnConfig, TheFirstValueThatDiffersIsRefusedWithBothValues) {
  ExpectRefused(
      {kUsual, kUsual,
       R"({"rms_norm_eps": 1e-5, "rope": {"theta": 1}, "kinds": ["full", "full"], "heads": 4})"},
      "rms_norm_eps of config.json is 1e-06 in process 0 and 1e-05 in process 2");
  ExpectRefused({kUsual, R"({"rms_norm_eps": 1e-6, "rope": {"theta": 500000.0},
                             "kinds": ["full", "full"], "heads": 4})"},
                "rope.theta of config.json is 10000.0 in process 0 and 500000.0 in process 1");
  ExpectRefused({kUsual, R"({"rms_norm_eps": 1e-6, "rope": {"theta": 10000.0},
                             "kinds": ["full", "window"], "heads": 4})"},
                "kinds[1] of config.json is \"full\" in process 0 and \"window\" in process 1");
  ExpectRefused(
      {kUsual, R"({"rms_norm_eps": 1e-6, "rope": {"theta": 10000.0},
                             "kinds": ["full"], "heads": 4})"},
      "kinds of config.json is [\"full\",\"full\"] in process 0 and [\"full\"] in process 1");
}

TEST(AgreeOnConfig, AKeyThatOneLacksIsADifference) {
  constexpr const char* kScaled = R"({"heads": 4, "scale": 2})";
  ExpectRefused({R"({"heads": 4})", kScaled},
                "scale of config.json is not given in process 0 and 2 in process 1");
  ExpectRefused({kScaled, R"({"heads": 4})"},
                "scale of config.json is 2 in process 0 and not given in process 1");
  ExpectRefused({R"({"heads": 4, "scale": null})", R"({"heads": 4, "scale": false})"},
                "scale of config.json is null in process 0 and false in process 1");
}

TEST(AgreeOnConfig, OnlyValuesCount) {
  const std::vector<std::string> agreed(2);
  EXPECT_EQ(ToldOfConfigs({kUsual, kUsual}), agreed);
  EXPECT_EQ(
      ToldOfConfigs({kUsual, R"({"heads": 4.0, "kinds": ["full", "full"], "rope": {"theta": 10000},
                              "rms_norm_eps": 0.000001})"}),
      agreed);
}

}  // namespace
}  // namespace pinion
