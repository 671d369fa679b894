#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "harness/artifacts/makers.h"

namespace pinion::harness {
namespace {

using testing::HasSubstr;
using testing::Not;

// Two nodes with two L3 domains of two cores each, whose second hardware threads are 8 to 15.
Profile OnRanks(const std::string& ranks, double memory_bytes = 1e9) {
  Profile profile;
  profile.objective = "throughput";
  profile.configuration.options.model = "/models/x";
  profile.machine = *Json::Parse(
      R"({"cores":8,"cpus":16,"nodes":[
          {"id":0,"cpu_list":"0-3,8-11","memory_bytes":64000000000},
          {"id":1,"cpu_list":"4-7,12-15","memory_bytes":64000000000}],
          "cores_by_l3":["0,8|1,9","2,10|3,11","4,12|5,13","6,14|7,15"]})");
  profile.cpus = Json(std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7});
  profile.expected =
      Json::Array{Json::Object{{"metric", "peak_rss_bytes"}, {"median", memory_bytes}}};
  profile.evidence = *Json::Parse(StrCat(R"({"plan":{"frontend_cpus":[],"ranks":)", ranks, "}}"));
  return profile;
}

// Four cores of one node without second threads.
Profile OnOneNode(const std::string& ranks) {
  Profile profile = OnRanks(ranks);
  profile.machine = *Json::Parse(
      R"({"cores":4,"cpus":4,"nodes":[{"id":0,"cpu_list":"0-3","memory_bytes":64000000000}],
          "cores_by_l3":["0|1|2|3"]})");
  return profile;
}

std::string KubeletOf(const Profile& profile) {
  const auto text = KubeletText(profile, {});
  EXPECT_TRUE(text) << (text ? "" : text.error().message);
  return *text;
}

TEST(Kubelet, PinnedThreadsNeedTheStaticPolicyAndACoreForTheSystem) {
  const std::string text = KubeletOf(OnOneNode(R"([{"cpus":[0,2]}])"));
  EXPECT_THAT(text, HasSubstr("kind: KubeletConfiguration\n"));
  EXPECT_THAT(text, HasSubstr("\ncpuManagerPolicy: static\n"));
  EXPECT_THAT(text, HasSubstr("\nreservedSystemCPUs: \"1\"\n"));
  for (const char* not_needed : {"cpuManagerPolicyOptions", "topologyManagerPolicy",
                                 "memoryManagerPolicy", "reservedMemory", "systemReserved"})
    EXPECT_THAT(text, Not(HasSubstr(not_needed)));
}

TEST(Kubelet, ThreadsThatAreNotPinnedNeedNoPolicy) {
  Profile profile = OnRanks(R"([{"cpus":[]}])");
  profile.configuration.options.threads_bind = "nobind";
  EXPECT_THAT(KubeletOf(profile), Not(HasSubstr("anagerPolicy:")));
}

TEST(Kubelet, APlanOnOneDomainOfOneNodeNeedsAllOfThem) {
  const std::string text = KubeletOf(OnRanks(R"([{"cpus":[2,3]}])"));
  EXPECT_THAT(text, HasSubstr("  full-pcpus-only: \"true\"\n"));
  EXPECT_THAT(text, HasSubstr("on 1 of 4 L3 domains"));
  EXPECT_THAT(text, HasSubstr("  prefer-align-cpus-by-uncorecache: \"true\"\n"));
  EXPECT_THAT(text, HasSubstr("\ntopologyManagerPolicy: single-numa-node\n"));
  EXPECT_THAT(text, HasSubstr("\nmemoryManagerPolicy: Static\n"));
  // The system's core and memory are not the node's that computes.
  EXPECT_THAT(text, HasSubstr("\nreservedSystemCPUs: \"4,12\"\n"));
  EXPECT_THAT(text, HasSubstr("systemReserved:\n  memory: 1024Mi\n"));
  EXPECT_THAT(text, HasSubstr("  - numaNode: 1\n    limits: {memory: 1124Mi}\n"));
}

TEST(Kubelet, MemoryThatNoNodeHasIsNotAskedOfOne) {
  const std::string text = KubeletOf(OnRanks(R"([{"cpus":[2,3]}])", 60e9));
  EXPECT_THAT(text, HasSubstr("single-numa-node"));
  EXPECT_THAT(text, Not(HasSubstr("memoryManagerPolicy")));
  EXPECT_THAT(text, Not(HasSubstr("systemReserved")));
}

TEST(Kubelet, APlanOfBothNodesIsRestrictedToThem) {
  const std::string text = KubeletOf(OnRanks(R"([{"cpus":[0,1,2]},{"cpus":[4,5,6]}])"));
  EXPECT_THAT(text, HasSubstr("\ntopologyManagerPolicy: restricted\n"));
  EXPECT_THAT(text, HasSubstr("  distribute-cpus-across-numa: \"true\"\n"));
  EXPECT_THAT(text, Not(HasSubstr("uncorecache"))) << "all domains are used";
  EXPECT_THAT(text, Not(HasSubstr("memoryManagerPolicy"))) << "it would have memory of one node";
  EXPECT_THAT(text, HasSubstr("\nreservedSystemCPUs: \"3,11\"\n"));
}

TEST(Kubelet, OptionsThatExcludeEachOtherAreNotTogether) {
  const std::string text = KubeletOf(OnRanks(R"([{"cpus":[0,1,2]},{"cpus":[4,5]}])"));
  EXPECT_THAT(text, HasSubstr("prefer-align-cpus-by-uncorecache"));
  EXPECT_THAT(text, Not(HasSubstr("distribute-cpus-across-numa")));
}

TEST(Kubelet, SaysThatNoPolicyGivesThePlan) {
  const std::string text = KubeletOf(OnRanks(R"([{"cpus":[0,1]},{"cpus":[4,5]}])"));
  EXPECT_THAT(text, HasSubstr("# The plan was on 2 NUMA nodes, but its CPUs fit on one"));
  EXPECT_THAT(text, Not(HasSubstr("topologyManagerPolicy")));
}

TEST(Kubelet, WithoutAnIdleCoreTheMachineMustBeLarger) {
  const std::string text = KubeletOf(OnOneNode(R"([{"cpus":[0,1,2,3]}])"));
  EXPECT_THAT(text, HasSubstr("5 hardware threads"));
  EXPECT_THAT(text, HasSubstr("systemReserved:\n  cpu: \"1\"\n"));
  EXPECT_THAT(text, Not(HasSubstr("reservedSystemCPUs")));
}

TEST(Kubelet, WithoutAnIdleCoreOnEitherNodeTheSystemKeepsSomeNevertheless) {
  const std::string text = KubeletOf(OnRanks(R"([{"cpus":[0,1,2,3]},{"cpus":[4,5,6,7]}])"));
  EXPECT_THAT(text, HasSubstr("18 hardware threads"));
  EXPECT_THAT(text, HasSubstr("\nsystemReserved:\n  cpu: \"2\"\n"));
}

TEST(Kubelet, OlderProfilesNameNoCores) {
  Profile profile = OnRanks(R"([{"cpus":[2,3]}])");
  std::erase_if(profile.machine.object(),
                [](const auto& item) { return item.first == "cores_by_l3"; });
  const std::string text = KubeletOf(profile);
  EXPECT_THAT(text, HasSubstr("systemReserved:\n  cpu: \"2\"\n  memory: 1024Mi\n"));
  EXPECT_THAT(text, Not(HasSubstr("reservedSystemCPUs")));
  profile.machine.Set("cpus", 8);  // one hardware thread each: CPUs are cores
  EXPECT_THAT(KubeletOf(profile), HasSubstr("reservedSystemCPUs: \"4\"\n"));
}

TEST(Kubelet, FieldsThatCannotBeReadAreAbsent) {
  Profile profile = OnOneNode(R"([{"cpus":[0,2]}])");
  for (const char* nodes : {"7", R"([7,{"id":"x"},{"id":1,"cpu_list":"0-"}])"}) {
    profile.machine.Set("nodes", *Json::Parse(nodes));
    profile.machine.Set("cores_by_l3", *Json::Parse(R"([7,"","a|b","0-99999999999"])"));
    EXPECT_THAT(KubeletOf(profile), HasSubstr("cpuManagerPolicy: static"));
  }
}

}  // namespace
}  // namespace pinion::harness
