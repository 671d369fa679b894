#include "harness/fleet/node_sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/fleet/kubernetes_jobs.h"

namespace pinion::harness {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(WithoutOptions, LeavesOutOptionsWithTheirValuesHoweverTheyAreSpelled) {
  const std::vector<OptionWords> options = {{"--nodes", 1}, {"--manifest", 0}};
  EXPECT_THAT(WithoutOptions({"sweep", "m", "--nodes", "3", "--quick", "--manifest"}, options),
              ElementsAre("sweep", "m", "--quick"));
  EXPECT_THAT(WithoutOptions({"sweep", "--nodes=3", "--manifest", "m"}, options),
              ElementsAre("sweep", "m"));
  EXPECT_THAT(WithoutOptions({"sweep", "--nodes-of", "x", "m", "--nodes"}, options),
              ElementsAre("sweep", "--nodes-of", "x", "m"));
}

TEST(NodeArguments, GiveEachNodeAFolderInWhichItContinues) {
  const FleetRequest request = {"m", {"sweep", "m"}, "out/m", 2, {}, ""};
  EXPECT_THAT(NodeArguments(request, 1),
              ElementsAre("sweep", "m", "--out", "out/m/node-1", "--continue"));
}

TEST(NodeArguments, NameTheFolderByTheNodeIfItHasAName) {
  const FleetRequest request = {"m", {"sweep", "m"}, "out/m", 2, {"cpu17", "cpu21"}, ""};
  EXPECT_EQ(NodeFolder(request, 1), "out/m/cpu21");
}

// Lower-case letters, digits and dashes, 63 characters at most.
TEST(JobsText, NamesObjectsByTheFolder) {
  const SweepPod pod = {"pinion", 4, "8Gi"};
  const auto name_of = [&](const std::string& out) {
    const FleetRequest request = {"preset:tiny", {"sweep"}, out, 1, {}, ""};
    const std::string text = *JobsText(request, pod);
    const size_t at = text.find("  name: ") + 8;
    return text.substr(at, text.find('\n', at) - at);
  };
  EXPECT_EQ(name_of("out/Qwen3_8B.awq/"), "pinion-sweep-qwen3-8b-awq-0");
  EXPECT_EQ(name_of("out/--"), "pinion-sweep-0");
  EXPECT_LE(name_of("out/" + std::string(200, 'x')).size(), 63u);
}

TEST(JobsText, MountsTheModelOnlyIfItIsInAFolder) {
  const SweepPod pod = {"pinion", 4, "8Gi"};
  const FleetRequest preset = {"preset:tiny", {"sweep", "preset:tiny"}, "out/tiny", 1, {}, ""};
  EXPECT_THAT(*JobsText(preset, pod), Not(HasSubstr("pinion-models")));
  const FleetRequest folder = {"/data/m", {"sweep", "/data/m"}, "out/m/", 1, {}, ""};
  EXPECT_THAT(*JobsText(folder, pod), HasSubstr("{name: models, mountPath: \"/data/m\""));
  EXPECT_THAT(*JobsText(folder, pod), HasSubstr("\"/sweeps/m/node-0\"")) << "without its parents";
}

// A word of the command line must stay one, whatever it holds.
TEST(JobsText, QuotesWords) {
  const FleetRequest request = {
      "preset:tiny", {"sweep", "preset:tiny", "--slo", "a: \"b\", #c"}, "o", 1, {}, ""};
  EXPECT_THAT(*JobsText(request, {"pinion", 4, "8Gi"}), HasSubstr(R"("a: \"b\", #c")"));
}

TEST(JobsText, TakesQuantitiesOfKubernetesAlone) {
  const FleetRequest request = {"preset:tiny", {"sweep"}, "o", 1, {}, ""};
  for (const char* memory : {"8Gi", "500M", "1Ti"})
    EXPECT_TRUE(JobsText(request, {"pinion", 1, memory})) << memory;
  for (const char* memory : {"", "8", "Gi", "8GiB", "-8Gi", "8 Gi"})
    EXPECT_THAT(JobsText(request, {"pinion", 1, memory}).error().message,
                HasSubstr("--node-memory"))
        << memory;
  EXPECT_THAT(JobsText(request, {"pinion", 0, "8Gi"}).error().message, HasSubstr("--node-cpus"));
}

}  // namespace
}  // namespace pinion::harness
