#include "engine/host/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "tests/engine/host/imagined.h"

namespace pinion {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::Pair;

constexpr uint64_t kGib = uint64_t{1} << 30;

// A system of files: proc/ and sys/ as a process in some container sees them. 64 CPUs, 64 GiB.
class FakeSystem : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = StrCat(testing::TempDir(), "fake_system_", getpid());
    Put("proc/meminfo", "MemTotal:       67108864 kB\nMemAvailable:   62914560 kB\n");
    Put("proc/self/status", "Name:\ttest\nCpus_allowed_list:\t0-63\n");
    machine_ = Imagine("pack:2 numa:1(memory=40GiB) core:32 pu:1");
    machine_.this_system = true;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    ASSERT_TRUE(WriteFile(file, text));
  }
  void MountV2(const std::string& group, const std::string& visible_root = "/") {
    Put("proc/self/cgroup", StrCat("0::", group, "\n"));
    Put("proc/self/mountinfo",
        StrCat("22 27 0:21 / /proc rw - proc proc rw\n41 31 0:38 ", visible_root,
               " /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"));
  }
  void MountV1(const std::string& group, const std::string& visible_root = "/") {
    Put("proc/self/cgroup", StrCat("5:memory:", group, "\n3:cpuset:", group,
                                   "\n2:cpu,cpuacct:", group, "\n1:name=systemd:/x\n"));
    std::string mounts;
    for (const char* controllers : {"memory", "cpuset", "cpu,cpuacct"})
      mounts += StrCat("32 31 0:29 ", visible_root, " /sys/fs/cgroup/", controllers,
                       " rw - cgroup cgroup rw,", controllers, "\n");
    Put("proc/self/mountinfo", mounts);
  }
  Budget Compute() {
    BudgetLimits limits;
    limits.root = root_;
    auto budget = ComputeBudget(machine_, limits);
    EXPECT_TRUE(budget) << (budget ? "" : budget.error().message);
    return budget ? *budget : Budget{};
  }

  std::string root_;
  Machine machine_;
};

TEST_F(FakeSystem, WithoutLimitsEverythingMayBeUsed) {
  const Budget budget = Compute();
  EXPECT_EQ(FormatCpuList(budget.cpus), "0-63");
  EXPECT_EQ(budget.cpu_quota, std::nullopt);
  EXPECT_EQ(budget.max_threads, 64);
  EXPECT_EQ(budget.memory_total_bytes, 64 * kGib) << "MemTotal, below the nodes' 80 GiB";
  EXPECT_EQ(budget.memory_available_bytes, 60 * kGib);
  EXPECT_THAT(budget.reasons, IsEmpty());
}

TEST_F(FakeSystem, IntersectsAffinityAndCpuset) {
  Put("proc/self/status", "Cpus_allowed_list:\t8-40\n");
  MountV2("/box");
  Put("sys/fs/cgroup/box/cpuset.cpus.effective", "32-63\n");
  const Budget budget = Compute();
  EXPECT_EQ(FormatCpuList(budget.cpus), "32-40");
  EXPECT_THAT(budget.reasons, ElementsAre(HasSubstr("/sys/fs/cgroup/box/cpuset.cpus.effective"),
                                          HasSubstr("9 of 32 CPUs: 32-40")));
}

TEST_F(FakeSystem, TakesTheSmallestQuotaUpTheChain) {
  MountV2("/slice/box");
  Put("sys/fs/cgroup/slice/box/cpu.max", "800000 100000\n");
  Put("sys/fs/cgroup/slice/cpu.max", "350000 100000\n");
  Put("sys/fs/cgroup/cpu.max", "max 100000\n");
  const Budget budget = Compute();
  EXPECT_THAT(budget.cpu_quota, Optional(DoubleEq(3.5)));
  EXPECT_EQ(budget.max_threads, 3);
  EXPECT_THAT(budget.reasons, ElementsAre(AllOf(HasSubstr("/sys/fs/cgroup/slice/cpu.max"),
                                                HasSubstr("3.5"), HasSubstr("3 threads"))));
}

TEST_F(FakeSystem, ReadsQuotasOfVersionOne) {
  MountV1("/docker/abc");
  Put("sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "50000\n");
  Put("sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
  Put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  Put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  const Budget budget = Compute();
  EXPECT_THAT(budget.cpu_quota, Optional(DoubleEq(0.5)));
  EXPECT_EQ(budget.max_threads, 1);
}

// A container that sees only its own group: /proc/self/cgroup names a path that is not below the
// mount, or one that the mount's root already includes.
TEST_F(FakeSystem, FindsItsGroupInsideAContainer) {
  MountV1("/docker/abc", "/docker/abc");
  Put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n");
  Put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Compute().max_threads, 2);
  MountV2("/../../elsewhere");
  Put("sys/fs/cgroup/cpu.max", "500000 100000");
  EXPECT_EQ(Compute().max_threads, 5);
}

TEST_F(FakeSystem, CountsPageCacheAsReclaimable) {
  MountV2("/box");
  Put("sys/fs/cgroup/box/memory.max", StrCat(16 * kGib));
  Put("sys/fs/cgroup/box/memory.high", "max\n");
  Put("sys/fs/cgroup/box/memory.current", StrCat(10 * kGib));
  Put("sys/fs/cgroup/box/memory.stat",
      StrCat("anon 4294967296\ninactive_file ", 5 * kGib, "\nactive_file ", kGib, "\n"));
  const Budget budget = Compute();
  EXPECT_EQ(budget.memory_total_bytes, 16 * kGib);
  EXPECT_EQ(budget.memory_available_bytes, 12 * kGib) << "16 - (10 - 6 of page cache)";
  EXPECT_EQ(AvailableMemoryBytes(root_), 12 * kGib);
  EXPECT_THAT(budget.reasons, ElementsAre(HasSubstr("memory to 16.0 GiB")));
  Put("sys/fs/cgroup/box/memory.high", StrCat(8 * kGib));
  EXPECT_EQ(AvailableMemoryBytes(root_), 4 * kGib);
}

TEST_F(FakeSystem, ReadsMemoryLimitsOfVersionOne) {
  MountV1("/job");
  Put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", StrCat(8 * kGib));
  Put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", StrCat(6 * kGib));
  Put("sys/fs/cgroup/memory/job/memory.stat",
      StrCat("inactive_file 1\ntotal_inactive_file ", 3 * kGib, "\n"));
  const Budget budget = Compute();
  EXPECT_EQ(budget.memory_total_bytes, 8 * kGib);
  EXPECT_EQ(budget.memory_available_bytes, 5 * kGib);
}

TEST_F(FakeSystem, CountsOnlyNodesWhoseMemoryIsAllowed) {
  machine_.nodes[0].memory_allowed = false;
  EXPECT_EQ(Compute().memory_total_bytes, 40 * kGib);
}

TEST_F(FakeSystem, CountsFreeMemoryOfEachNode) {
  const auto put = [&](int node, const std::string& rest) {
    Put(StrCat("sys/devices/system/node/node", node, "/meminfo"),
        StrCat("Node ", node, " MemTotal:       33554432 kB\nNode ", node,
               " MemFree:        1048576 kB\n", rest));
  };
  put(0,
      "Node 0 Active(file):   2097152 kB\nNode 0 Inactive(file): 3145728 kB\n"
      "Node 0 Active(anon):  16777216 kB\nNode 0 Shmem:  1048576 kB\n"
      "Node 0 SReclaimable:   1048576 kB\n");
  EXPECT_THAT(Compute().node_available_bytes, ElementsAre(Pair(0, 7 * kGib)))
      << "node 1 does not tell";
  put(1, "");
  EXPECT_THAT(Compute().node_available_bytes, ElementsAre(Pair(0, 7 * kGib), Pair(1, kGib)));
  machine_.this_system = false;
  EXPECT_THAT(Compute().node_available_bytes, IsEmpty());
}

TEST_F(FakeSystem, OnlyNodeHasAllFreeMemory) {
  machine_ = Imagine("pack:1 numa:1(memory=40GiB) core:64 pu:1");
  machine_.this_system = true;
  Put("sys/devices/system/node/node0/meminfo",
      "Node 0 MemTotal:       33554432 kB\nNode 0 MemFree:        1048576 kB\n");
  EXPECT_THAT(Compute().node_available_bytes, ElementsAre(Pair(0, 60 * kGib)))
      << "a part of its memory is not plugged in yet";
}

TEST_F(FakeSystem, SurvivesGarbage) {
  Put("proc/self/cgroup", "no colons\n0::\n::::\n");
  Put("proc/self/mountinfo", "short\n1 2 3 / /sys/fs/cgroup rw - cgroup2\n - cgroup2 x y\n");
  Put("sys/fs/cgroup/cpu.max", "lots 0\n");
  Put("proc/meminfo", "MemTotal: much\n");
  EXPECT_EQ(Compute().max_threads, 64);
}

TEST(Budget, OverridesReplaceTheSystemsFigures) {
  const Machine machine = Imagine("numa:1 core:8 pu:1");
  const Budget budget = BudgetOf(machine, "5,1,5,3", 2.9);
  EXPECT_THAT(budget.cpus, ElementsAre(1, 3, 5)) << "sorted, each once";
  EXPECT_EQ(budget.max_threads, 2);
  EXPECT_EQ(BudgetOf(machine, {}, 1e300).max_threads, 8);
  EXPECT_THAT(budget.reasons, Contains(HasSubstr("3 of 8 CPUs: 1-5:2")));
}

TEST(Budget, NamesTheCpuThatDoesNotExist) {
  const Machine machine = Imagine("numa:1 core:8 pu:1");
  BudgetLimits limits;
  limits.allowed_cpus = {0, 8};
  auto budget = ComputeBudget(machine, limits);
  ASSERT_FALSE(budget);
  EXPECT_EQ(budget.error().code, ErrorCode::kUsage);
  EXPECT_THAT(budget.error().message, AllOf(HasSubstr("cpu 8"), HasSubstr("0-7")));
  limits.allowed_cpus = std::vector<int>{};
  EXPECT_THAT(ComputeBudget(machine, limits).error().message, HasSubstr("no CPU is left"));
  limits.allowed_cpus.reset();
  for (double quota : {0.0, -1.0}) {
    limits.cpu_quota = quota;
    EXPECT_THAT(ComputeBudget(machine, limits).error().message, HasSubstr("above 0"));
  }
}

TEST(Budget, OfThisMachineIsWithinIt) {
  const Machine machine = ThisMachine().value();
  const Budget budget = ComputeBudget(machine).value();
  for (int cpu : budget.cpus) EXPECT_NE(machine.Find(cpu), nullptr);
  EXPECT_GE(budget.max_threads, 1);
  EXPECT_GT(budget.memory_available_bytes, 0u);
  EXPECT_LE(budget.memory_available_bytes, budget.memory_total_bytes);
}

TEST(Budget, WritesNullWithoutAQuota) {
  const Json json = ToJson(BudgetOf(Imagine("numa:1 core:2 pu:1")));
  EXPECT_EQ(json.Find("cpus")->Dump(), "[0,1]");
  EXPECT_TRUE(json.Find("cpu_quota")->is_null());
}

TEST(PartOf, DividesCoresQuotaAndMemory) {
  const Machine machine = Imagine("pack:2 numa:1 core:4 pu:2");
  Budget whole = *ComputeBudget(machine);
  whole.memory_available_bytes = 12 * kGib;
  whole.node_available_bytes = {{0, 4 * kGib}};
  whole.max_threads = 6;
  const Budget second = PartOf(machine, whole, 1, 2, true);
  EXPECT_EQ(second.cpus, machine.nodes[1].cpus) << "a whole node";
  EXPECT_EQ(second.max_threads, 3);
  EXPECT_EQ(second.memory_available_bytes, 6 * kGib);
  EXPECT_EQ(second.node_available_bytes.at(0), 2 * kGib);
  EXPECT_THAT(second.reasons.back(), HasSubstr("2 processes here"));
  EXPECT_EQ(PartOf(machine, whole, 1, 2, false).cpus, whole.cpus);
  EXPECT_EQ(PartOf(machine, whole, 0, 1, true).memory_available_bytes, 12 * kGib);
  EXPECT_EQ(PartOf(machine, whole, 9, 16, true).cpus, PartOf(machine, whole, 1, 8, true).cpus)
      << "more parts than cores";
}

// mpirun --bind-to core: each process has CPUs of its own, but the quota is that of all.
TEST(PartOf, DividesTheQuotaAmongProcessesWithTheirOwnCpus) {
  const Machine machine = Imagine("pack:1 numa:1 core:8 pu:1");
  const Budget own = BudgetOf(machine, "0-3", 6.0);
  EXPECT_EQ(own.max_threads, 4);
  const Budget share = PartOf(machine, own, 0, 2, false);
  EXPECT_EQ(share.max_threads, 3) << "half of 6, as for the other process";
  EXPECT_EQ(share.cpu_quota, 3.0);
  EXPECT_EQ(share.cpus, own.cpus);
  EXPECT_THAT(share.reasons.back(), HasSubstr("share the 6 CPUs of time: at most 3 threads each"));
  EXPECT_EQ(PartOf(machine, own, 0, 9, false).max_threads, 1) << "never none";
  EXPECT_EQ(PartOf(machine, BudgetOf(machine, "0-3", 64.0), 0, 2, false).max_threads, 4);
  EXPECT_EQ(PartOf(machine, BudgetOf(machine, "0-3"), 0, 2, false).max_threads, 4) << "no quota";
}

// A process on small cores alone would hold up the other.
TEST(PartOf, GivesEveryProcessLargeCores) {
  const Machine machine = LargeAndSmallCores(4, 6);
  const Budget whole = *ComputeBudget(machine);
  EXPECT_EQ(FormatCpuList(PartOf(machine, whole, 0, 2, true).cpus), "0-3,8-10");
  EXPECT_EQ(FormatCpuList(PartOf(machine, whole, 1, 2, true).cpus), "4-7,11-13");
  EXPECT_EQ(FormatCpuList(PartOf(machine, whole, 4, 5, true).cpus), "12-13")
      << "fewer large cores than processes: all are divided";
}

}  // namespace
}  // namespace pinion
