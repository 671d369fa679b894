#include "engine/host/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <set>

#include "engine/base/file.h"
#include "engine/host/affinity.h"
#include "tests/engine/host/imagined.h"

namespace pinion {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

template <typename Member>
std::set<int> Values(const Machine& machine, Member member) {
  std::set<int> values;
  for (const Cpu& cpu : machine.cpus) values.insert(cpu.*member);
  return values;
}

// Two sockets, one node and two L3 domains each.
TEST(MachineLayout, ListsEveryCpuOnceByNodeAndL3) {
  const Machine machine = Imagine("pack:2 numa:1(memory=1GB) l3:2 core:2 pu:2");
  const Json layout = MachineLayout(machine);
  std::vector<int64_t> cpus, l3s, packages;
  for (const Json& node : layout.Find("nodes")->array()) {
    EXPECT_EQ(*node.Find("memory_bytes"), Json(int64_t{1'000'000'000}));
    for (const Json& core : node.Find("cores")->array()) {
      EXPECT_THAT(core.Find("cpus")->array(), SizeIs(2));
      for (const Json& cpu : core.Find("cpus")->array()) cpus.push_back(cpu.integer());
      l3s.push_back(core.Find("l3")->integer());
      packages.push_back(core.Find("package")->integer());
      EXPECT_EQ(machine.Find(static_cast<int>(cpus.back()))->node, node.Find("id")->integer());
    }
  }
  EXPECT_THAT(cpus, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  EXPECT_THAT(l3s, ElementsAre(0, 0, 1, 1, 2, 2, 3, 3));
  EXPECT_THAT(packages, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
}

TEST(Machine, ReadsSocketsNodesCoresAndSiblings) {
  const Machine machine = Imagine("pack:2 numa:2(memory=128GB) l3:2 core:4 pu:2");
  EXPECT_FALSE(machine.this_system);
  EXPECT_THAT(machine.cpus, SizeIs(64));
  EXPECT_THAT(Values(machine, &Cpu::package), SizeIs(2));
  EXPECT_THAT(Values(machine, &Cpu::node), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Values(machine, &Cpu::l3), SizeIs(8));
  EXPECT_THAT(Values(machine, &Cpu::core), SizeIs(32));
  EXPECT_THAT(Values(machine, &Cpu::sibling), ElementsAre(0, 1));
  EXPECT_EQ(machine.nodes[3].memory_bytes, 128'000'000'000u);
  EXPECT_THAT(machine.nodes[3].cpus, SizeIs(16));
  EXPECT_TRUE(machine.nodes[3].memory_allowed);
}

TEST(Machine, HasOneL3PerNodeIfNoneIsKnown) {
  const Machine machine = Imagine("pack:2 numa:1 core:4 pu:1");
  EXPECT_THAT(Values(machine, &Cpu::l3), SizeIs(2));
  EXPECT_EQ(machine.l3_bytes, 0u);
}

TEST(Machine, FindsSparseCpuNumbers) {
  const Machine machine = Imagine("numa:1 core:2 pu:2(indexes=4,20,8,24)");
  EXPECT_EQ(FormatCpuList(
                {machine.cpus[0].id, machine.cpus[1].id, machine.cpus[2].id, machine.cpus[3].id}),
            "4,8,20,24")
      << "ascending";
  ASSERT_NE(machine.Find(20), nullptr);
  EXPECT_EQ(machine.Find(20)->core, machine.Find(4)->core);
  EXPECT_EQ(machine.Find(20)->sibling, 1);
  EXPECT_EQ(machine.Find(5), nullptr);
  EXPECT_EQ(machine.Find(-1), nullptr);
}

TEST(Machine, RefusesInvalidDescriptions) {
  for (const char* bad : {"", "nonsense", "pack:0", "core:2 core:2 core"}) {
    const auto machine = ImagineMachine(bad);
    ASSERT_FALSE(machine) << bad;
    EXPECT_EQ(machine.error().code, ErrorCode::kUsage);
    EXPECT_THAT(machine.error().message,
                AllOf(HasSubstr(StrCat("'", bad, "'")), HasSubstr("core:32")));
  }
  EXPECT_EQ(ImagineMachine("/nowhere/machine.xml").error().code, ErrorCode::kNotFound);
}

TEST(Machine, ReadsAnXmlFile) {
  const std::string path = StrCat(testing::TempDir(), "machine", getpid(), ".xml");
  const std::string command =
      StrCat("lstopo-no-graphics -i 'pack:2 numa:1 core:3 pu:1' --of xml --force ", path);
  if (std::system(command.c_str()) != 0) GTEST_SKIP() << "needs lstopo (package hwloc-nox)";
  const Machine machine = Imagine(path);
  EXPECT_THAT(machine.cpus, SizeIs(6));
  EXPECT_THAT(machine.nodes, SizeIs(2));
  ASSERT_TRUE(WriteFile(path, "<topology><nonsense>"));
  EXPECT_FALSE(ImagineMachine(path));
  unlink(path.c_str());
}

TEST(Machine, ReadsThisMachine) {
  const Machine machine = ThisMachine().value();
  EXPECT_TRUE(machine.this_system);
  const std::vector<int> allowed = ThreadAffinity().value();
  for (int cpu : allowed) EXPECT_NE(machine.Find(cpu), nullptr) << cpu;
  uint64_t memory = 0;
  for (const NumaNode& node : machine.nodes) memory += node.memory_bytes;
  EXPECT_GT(memory, uint64_t{1} << 28);
}

TEST(Machine, HonoursHwlocsEnvironmentVariables) {
  setenv("HWLOC_SYNTHETIC", "pack:2 numa:1 core:1 pu:1", 1);
  const auto imagined = ThisMachine();
  setenv("HWLOC_THISSYSTEM", "1", 1);
  const auto trusted = ThisMachine();
  unsetenv("HWLOC_THISSYSTEM");
  unsetenv("HWLOC_SYNTHETIC");
  ASSERT_TRUE(imagined);
  EXPECT_EQ(imagined->name, "pack:2 numa:1 core:1 pu:1");
  EXPECT_THAT(imagined->nodes, SizeIs(2));
  EXPECT_FALSE(imagined->this_system);
  ASSERT_TRUE(trusted);
  EXPECT_TRUE(trusted->this_system);
}

TEST(MachineFingerprint, TellsTheCoresOfEveryL3Domain) {
  const Json print = MachineFingerprint(Imagine("numa:1 l3:2 core:2 pu:2"));
  EXPECT_EQ(print.Find("cores_by_l3")->Dump(), R"(["0-1|2-3","4-5|6-7"])");
}

TEST(MachineFingerprint, TellsMachinesApartAndStaysTheSame) {
  const auto print = [](const char* description) {
    return MachineFingerprint(Imagine(description)).Dump();
  };
  EXPECT_EQ(print("numa:2 core:4 pu:1"), print("numa:2 core:4 pu:1"));
  EXPECT_NE(print("numa:2 core:4 pu:1"), print("numa:1 core:8 pu:1"));
  const Json here = MachineFingerprint(ThisMachine().value());
  EXPECT_FALSE(here.Find("kernel")->is_null());
  EXPECT_GT(here.Find("cores")->integer(), 0);
}

}  // namespace
}  // namespace pinion
