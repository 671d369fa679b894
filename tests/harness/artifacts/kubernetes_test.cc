#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/artifacts/makers.h"

namespace pinion::harness {
namespace {

using testing::HasSubstr;
using testing::Not;

// Measured on 4 of 8 cores with two hardware threads each, with 5 GiB.
Profile Measured() {
  Profile profile;
  profile.objective = "throughput";
  profile.configuration.options.model = "/models/x";
  profile.machine = Json::Object{{"cores", 8}, {"cpus", 16}};
  profile.cpus = Json(std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  profile.expected = *Json::Parse(
      R"([{"metric":"load_s","median":3},{"metric":"peak_rss_bytes","median":5368709120}])");
  profile.evidence =
      *Json::Parse(R"({"plan":{"ranks":[{"cpus":[0,1]},{"cpus":[2]}],"frontend_cpus":[3]}})");
  return profile;
}

std::string Text(const Profile& profile, const PodOptions& options = {}) {
  const auto text = KubernetesText(profile, options);
  EXPECT_TRUE(text) << (text ? "" : text.error().message);
  return *text;
}

TEST(PodSize, IsWholeCoresAndAQuarterMoreThanThePeak) {
  Profile profile = Measured();
  EXPECT_EQ(PodSizeOf(profile)->cpus, 8);
  EXPECT_EQ(PodSizeOf(profile)->memory_gib, 7);
  profile.configuration.options.smt = "on";  // the plan has them all
  EXPECT_EQ(PodSizeOf(profile)->cpus, 4);
  profile.evidence = *Json::Parse(R"({"plan":{"ranks":[{"cpus":[0,1,2]}],"frontend_cpus":[]}})");
  EXPECT_EQ(PodSizeOf(profile)->cpus, 4) << "half a core is nobody else's";
  profile.evidence = Json::MakeObject();  // as older versions wrote it
  EXPECT_EQ(PodSizeOf(profile)->cpus, 16);
}

TEST(PodSize, IsRefusedIfTheProfileDoesNotSayIt) {
  Profile profile = Measured();
  profile.expected = Json::MakeArray();
  EXPECT_THAT(PodSizeOf(profile).error().message, HasSubstr("peak_rss_bytes"));
  profile = Measured();
  profile.evidence = Json::MakeObject();
  profile.cpus = Json::MakeArray();
  EXPECT_THAT(PodSizeOf(profile).error().message, HasSubstr("on which CPUs"));
}

TEST(Kubernetes, PodIsGuaranteed) {
  const std::string text = Text(Measured());
  EXPECT_THAT(text, HasSubstr("requests: {cpu: \"8\", memory: 7Gi}\n"));
  EXPECT_THAT(text, HasSubstr("limits: {cpu: \"8\", memory: 7Gi}\n"));
}

TEST(Kubernetes, ModelIsMountedAtTheProfilesPath) {
  Profile profile = Measured();
  EXPECT_THAT(Text(profile), HasSubstr("{name: models, mountPath: \"/models/x\", readOnly: true}"));
  profile.configuration.options.model = "models/y.gguf";
  EXPECT_THAT(Text(profile), HasSubstr("mountPath: \"/models\", readOnly"));
  profile.configuration.options.model = "no-such-org/name";
  EXPECT_THAT(Text(profile), HasSubstr("mountPath: \"/root/.cache/huggingface\", readOnly"));
  profile.configuration.options.model = "preset:tiny";
  EXPECT_THAT(Text(profile), Not(HasSubstr("models")));
}

TEST(Kubernetes, NoVolumeIsMountedOverTheRoot) {
  for (const char* model : {"model.gguf", "/y.gguf", "."}) {
    Profile profile = Measured();
    profile.configuration.options.model = model;
    const auto text = KubernetesText(profile, {});
    ASSERT_FALSE(text) << model;
    EXPECT_THAT(text.error().message, HasSubstr("lies in /")) << model;
  }
}

TEST(Kubernetes, WordsFromOutsideAreQuoted) {
  const std::string text = Text(Measured(), {"registry:5000/a\"b: c", "it's # me"});
  EXPECT_THAT(text, HasSubstr(R"(image: "registry:5000/a\"b: c")"));
  EXPECT_THAT(text, HasSubstr(R"("--served-model-name", "it's # me"])"));
}

}  // namespace
}  // namespace pinion::harness
