// The machine is a folder: proc/ and sys/ as some machine has them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "engine/base/file.h"
#include "engine/base/strings.h"
#include "harness/doctor/apply.h"
#include "harness/doctor/checks.h"
#include "harness/doctor/counters.h"

namespace pinion::harness {
namespace {

using ::testing::HasSubstr;
using State = Check::State;

const std::string kCpu = "sys/devices/system/cpu/";

class DoctorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / StrCat("pinion_doctor_", getpid());
    std::filesystem::create_directories(root_);
    patient_.root = root_.string() + "/";
    patient_.allowed_cpus = 2;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    ASSERT_TRUE(WriteFile(root_ / path, text));
  }
  std::string Get(const std::string& path) {
    return std::string(Trim(ReadFile(root_ / path).value_or("")));
  }
  Check Of(const std::string& name) const {
    for (const Check& check : Examine(patient_))
      if (check.name == name) return check;
    ADD_FAILURE() << "no check " << name;
    return {};
  }

  std::filesystem::path root_;
  DoctorTarget patient_;
};

TEST_F(DoctorTest, MissingFilesAreNotAvailableWithAReason) {
  for (const char* name :
       {"governor", "turbo", "smt", "numa_balancing", "zone_reclaim", "huge_pages",
        "reserved_pages", "openmp", "cpuset", "mitigations", "load", "swap"}) {
    const Check check = Of(name);
    EXPECT_EQ(check.state, State::kNotAvailable) << name;
    EXPECT_FALSE(check.reason.empty()) << name;
    EXPECT_TRUE(check.changes.empty()) << name;
  }
  EXPECT_EQ(Of("quota").state, State::kOk);
}

TEST_F(DoctorTest, GovernorNamesOnlyTheCpusThatNeedIt) {
  Put(kCpu + "cpu0/cpufreq/scaling_governor", "performance\n");
  Put(kCpu + "cpu10/cpufreq/scaling_governor", "powersave\n");
  const Check check = Of("governor");
  EXPECT_EQ(check.state, State::kWarn);
  ASSERT_EQ(check.changes.size(), 1u);
  EXPECT_EQ(check.changes[0].path, kCpu + "cpu10/cpufreq/scaling_governor");
  EXPECT_THAT(check.fix, HasSubstr("cpupower"));
  Put(kCpu + "cpu10/cpufreq/scaling_governor", "performance\n");
  EXPECT_EQ(Of("governor").state, State::kOk);
}

TEST_F(DoctorTest, TurboIsReadOnBothKindsOfMachine) {
  Put(kCpu + "cpufreq/boost", "0\n");
  EXPECT_EQ(Of("turbo").state, State::kWarn);
  EXPECT_EQ(Of("turbo").changes[0].after, "1");
  Put(kCpu + "intel_pstate/no_turbo", "0\n");
  EXPECT_EQ(Of("turbo").state, State::kOk);
}

TEST_F(DoctorTest, NumaBalancingMattersOnSeveralNodesOnly) {
  Put("proc/sys/kernel/numa_balancing", "1\n");
  EXPECT_EQ(Of("numa_balancing").state, State::kWarn) << "nodes that cannot be read";
  Put("sys/devices/system/node/online", "0-1\n");
  EXPECT_EQ(Of("numa_balancing").state, State::kWarn);
  EXPECT_EQ(Of("numa_balancing").fix, "sysctl -w kernel.numa_balancing=0");
  for (const char* one : {"0\n", "3\n"}) {
    Put("sys/devices/system/node/online", one);
    EXPECT_EQ(Of("numa_balancing").state, State::kOk) << one;
  }
  Put("sys/devices/system/node/online", "0-1\n");
  Put("proc/sys/kernel/numa_balancing", "0\n");
  EXPECT_EQ(Of("numa_balancing").state, State::kOk);
}

TEST_F(DoctorTest, ZoneReclaimMattersOnSeveralNodesOnly) {
  Put("sys/devices/system/node/online", "0-1\n");
  for (const char* on : {"1\n", "4\n", "7\n"}) {
    Put("proc/sys/vm/zone_reclaim_mode", on);
    EXPECT_EQ(Of("zone_reclaim").state, State::kWarn) << on;
  }
  EXPECT_EQ(Of("zone_reclaim").found, "mode 7");
  EXPECT_EQ(Of("zone_reclaim").fix, "sysctl -w vm.zone_reclaim_mode=0");
  Put("sys/devices/system/node/online", "0\n");
  EXPECT_EQ(Of("zone_reclaim").state, State::kOk);
  Put("sys/devices/system/node/online", "0-1\n");
  Put("proc/sys/vm/zone_reclaim_mode", "0\n");
  EXPECT_EQ(Of("zone_reclaim").state, State::kOk);
}

TEST_F(DoctorTest, NumaSettingsAreAppliedAndRestored) {
  Put("sys/devices/system/node/online", "0-1\n");
  Put("proc/sys/kernel/numa_balancing", "1\n");
  Put("proc/sys/vm/zone_reclaim_mode", "1\n");
  const auto changes = ChangesOf(Examine(patient_), {"numa_balancing", "zone_reclaim"});
  ASSERT_TRUE(changes) << changes.error().message;
  ASSERT_TRUE(ApplyChanges(patient_.root, *changes));
  EXPECT_EQ(Of("numa_balancing").state, State::kOk);
  EXPECT_EQ(Of("zone_reclaim").state, State::kOk);
  ASSERT_TRUE(RestoreChanges(patient_.root, *changes));
  EXPECT_EQ(Get("proc/sys/kernel/numa_balancing"), "1");
  EXPECT_EQ(Get("proc/sys/vm/zone_reclaim_mode"), "1");
}

TEST_F(DoctorTest, HugePagesOnRequestAreEnough) {
  const std::string path = "sys/kernel/mm/transparent_hugepage/enabled";
  for (const char* enough : {"always [madvise] never\n", "[always] madvise never\n"}) {
    Put(path, enough);
    EXPECT_EQ(Of("huge_pages").state, State::kOk) << enough;
  }
  Put(path, "always madvise [never]\n");
  EXPECT_EQ(Of("huge_pages").state, State::kWarn);
  EXPECT_EQ(Of("huge_pages").changes[0].before, "never");
  EXPECT_EQ(Of("huge_pages").fix, "echo madvise > /" + path);
}

TEST_F(DoctorTest, SharedWeightsWantHugePagesToo) {
  const std::string folder = "sys/kernel/mm/transparent_hugepage/";
  Put(folder + "enabled", "always [madvise] never\n");
  Put(folder + "shmem_enabled", "always within_size [advise] never deny force\n");
  EXPECT_EQ(Of("huge_pages").state, State::kOk);
  Put(folder + "shmem_enabled", "always within_size advise [never] deny force\n");
  Put("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
  EXPECT_EQ(Of("huge_pages").state, State::kOk) << "the kernel joins them when told to";
  for (const char* older : {"6.0.12\n", "5.15.0-91-generic\n"}) {
    Put("proc/sys/kernel/osrelease", older);
    EXPECT_EQ(Of("huge_pages").state, State::kWarn) << older;
  }
  EXPECT_EQ(Of("huge_pages").fix, "echo advise > /" + folder + "shmem_enabled");
  EXPECT_THAT(Of("huge_pages").reason, HasSubstr("each pack their own copy of the weights"));
  ASSERT_EQ(Of("huge_pages").changes.size(), 1u);
  EXPECT_EQ(Of("huge_pages").changes[0].after, "advise");
  Put("proc/sys/kernel/osrelease", "6.12.0\n");
  Put(folder + "shmem_enabled", "always within_size advise never [deny] force\n");
  EXPECT_EQ(Of("huge_pages").state, State::kWarn);
}

TEST_F(DoctorTest, HugePagesNeedRoomThatIsMadeOnRequest) {
  const std::string folder = "sys/kernel/mm/transparent_hugepage/";
  Put(folder + "enabled", "always [madvise] never\n");
  for (const char* enough : {"[always] defer defer+madvise madvise never\n",
                             "always defer [defer+madvise] madvise never\n",
                             "always defer defer+madvise [madvise] never\n"}) {
    Put(folder + "defrag", enough);
    EXPECT_EQ(Of("huge_pages").state, State::kOk) << enough;
  }
  Put(folder + "defrag", "always [defer] defer+madvise madvise never\n");
  EXPECT_EQ(Of("huge_pages").state, State::kWarn);
  Put(folder + "defrag", "always defer defer+madvise madvise [never]\n");
  EXPECT_EQ(Of("huge_pages").found, "madvise, defrag never");
  ASSERT_EQ(Of("huge_pages").changes.size(), 1u);
  EXPECT_EQ(Of("huge_pages").changes[0].path, folder + "defrag");
  Put(folder + "enabled", "always madvise [never]\n");
  EXPECT_EQ(Of("huge_pages").changes.size(), 2u);
  EXPECT_THAT(Of("huge_pages").fix, HasSubstr("enabled; echo madvise > /" + folder + "defrag"));
}

TEST_F(DoctorTest, ReservedPagesThatNobodyTookAreMissed) {
  const std::string folder = "sys/kernel/mm/hugepages/";
  Put(folder + "hugepages-2048kB/free_hugepages", "0\n");
  Put(folder + "hugepages-1048576kB/free_hugepages", "0\n");
  EXPECT_EQ(Of("reserved_pages").state, State::kOk);
  Put(folder + "hugepages-2048kB/free_hugepages", "512\n");
  Put(folder + "hugepages-1048576kB/free_hugepages", "3\n");
  EXPECT_EQ(Of("reserved_pages").state, State::kWarn);
  EXPECT_EQ(Of("reserved_pages").found, "4.0 GiB free");
  EXPECT_TRUE(Of("reserved_pages").changes.empty()) << "another program may be about to use them";
}

TEST_F(DoctorTest, AllocatorAndOpenMpAreReadFromTheProcess) {
  EXPECT_THAT(Of("allocator").fix, HasSubstr("apt install"));
  Put("lib/libtcmalloc_minimal.so.4", "");
  patient_.library_folders = {(root_ / "lib").string()};
  EXPECT_THAT(Of("allocator").fix, HasSubstr("LD_PRELOAD=" + (root_ / "lib").string()));
  patient_.environment["LD_PRELOAD"] = "libtcmalloc_minimal.so.4";
  EXPECT_EQ(Of("allocator").state, State::kOk);

  Put("proc/self/maps", "7f00 r-xp /usr/lib/x86_64-linux-gnu/libgomp.so.1.0.0\n");
  EXPECT_EQ(Of("openmp").found, "libgomp");
  patient_.environment["OMP_PROC_BIND"] = "close";
  EXPECT_EQ(Of("openmp").fix, "unset OMP_PROC_BIND");
  Put("proc/self/maps", "7f00 /usr/lib/libgomp.so.1\n7f10 /usr/lib/libomp.so.5\n");
  EXPECT_THAT(Of("openmp").found, HasSubstr("libgomp and libomp"));
}

TEST_F(DoctorTest, QuotaAndCpusetAreLimitsOfThisProcess) {
  Put("proc/self/cgroup", "0::/box\n");
  Put("proc/self/mountinfo", "1 0 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  Put("sys/fs/cgroup/box/cpu.max", "150000 100000\n");
  EXPECT_EQ(Of("quota").state, State::kWarn);
  EXPECT_THAT(Of("quota").found, HasSubstr("1.5 CPUs"));
  Put("sys/fs/cgroup/box/cpu.max", "max 100000\n");
  EXPECT_EQ(Of("quota").state, State::kOk);
  Put(kCpu + "online", "0-3\n");
  EXPECT_EQ(Of("cpuset").found, "2 of 4 CPUs");
  EXPECT_EQ(Of("cpuset").state, State::kWarn);
}

TEST_F(DoctorTest, WarnsOfLoadAndSwapOnlyIfTheyHurt) {
  Put("proc/loadavg", "0.10 0.2 0.3 1/100 5\n");
  EXPECT_EQ(Of("load").state, State::kOk);
  Put("proc/loadavg", "4.50 0.2 0.3 1/100 5\n");
  EXPECT_EQ(Of("load").state, State::kWarn);
  Put("proc/meminfo", "MemTotal: 9 kB\nSwapTotal: 2048 kB\nSwapFree: 2048 kB\n");
  EXPECT_EQ(Of("swap").state, State::kOk);
  Put("proc/meminfo", "SwapTotal: 2048 kB\nSwapFree: 1024 kB\n");
  EXPECT_THAT(Of("swap").found, HasSubstr("1.0 MiB of 2.0 MiB"));
}

TEST_F(DoctorTest, MitigationsAreListed) {
  Put(kCpu + "vulnerabilities/meltdown", "Not affected\n");
  Put(kCpu + "vulnerabilities/spectre_v2", "Mitigation: Retpolines\n");
  EXPECT_EQ(Of("mitigations").found, "spectre_v2");
}

TEST_F(DoctorTest, ApplyChangesTheNamedSettingsAndRestoresThem) {
  Put(kCpu + "cpu0/cpufreq/scaling_governor", "powersave\n");
  Put(kCpu + "cpufreq/boost", "0\n");
  const auto changes = ChangesOf(Examine(patient_), {"governor"});
  ASSERT_TRUE(changes) << changes.error().message;
  ASSERT_TRUE(ApplyChanges(patient_.root, *changes));
  EXPECT_EQ(Get(kCpu + "cpu0/cpufreq/scaling_governor"), "performance");
  EXPECT_EQ(Get(kCpu + "cpufreq/boost"), "0");
  EXPECT_EQ(RestoreCommands(*changes),
            "echo powersave > /" + kCpu + "cpu0/cpufreq/scaling_governor\n");
  EXPECT_TRUE(RestoreChanges(patient_.root, *changes));
  EXPECT_EQ(Get(kCpu + "cpu0/cpufreq/scaling_governor"), "powersave");
}

TEST_F(DoctorTest, FailedChangeRestoresTheOthers) {
  Put(kCpu + "cpufreq/boost", "0\n");
  auto changes = *ChangesOf(Examine(patient_), {"turbo"});
  changes.push_back({"sys/not/there", "a", "b"});
  const Status applied = ApplyChanges(patient_.root, changes);
  ASSERT_FALSE(applied);
  EXPECT_THAT(applied.error().message, HasSubstr("sys/not/there"));
  EXPECT_EQ(Get(kCpu + "cpufreq/boost"), "0");
}

TEST_F(DoctorTest, ApplyRefusesUnchangeableSettings) {
  Put(kCpu + "cpufreq/boost", "0\n");
  for (const char* name : {"humour", "swap"}) {
    const auto changes = ChangesOf(Examine(patient_), {name});
    ASSERT_FALSE(changes);
    EXPECT_EQ(changes.error().code, ErrorCode::kUsage);
    EXPECT_THAT(changes.error().message, HasSubstr("these can be applied now: turbo"));
  }
}

TEST_F(DoctorTest, RestoreLeavesSettingsThatWereChangedSince) {
  Put(kCpu + "cpu0/cpufreq/scaling_governor", "powersave\n");
  Put("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  const auto changes = *ChangesOf(Examine(patient_), {"governor", "huge_pages"});
  ASSERT_TRUE(ApplyChanges(patient_.root, changes));
  Put(kCpu + "cpu0/cpufreq/scaling_governor", "ondemand\n");
  Put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");  // as it answers
  const Status restored = RestoreChanges(patient_.root, changes);
  ASSERT_FALSE(restored);
  EXPECT_THAT(restored.error().message, HasSubstr("is 'ondemand' now"));
  EXPECT_EQ(Get(kCpu + "cpu0/cpufreq/scaling_governor"), "ondemand");
  EXPECT_EQ(Get("sys/kernel/mm/transparent_hugepage/enabled"), "never");  // the others all the same
}

TEST_F(DoctorTest, RestoreFileIsReadBackAndChecked) {
  const std::vector<Change> changes = {{"sys/a", "0", "1"}, {"proc/sys/b", "x", "y"}};
  const auto read = ReadChanges(ToJson(changes));
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[1].path, "proc/sys/b");
  EXPECT_EQ((*read)[1].before, "x");
  for (const char* path : {"/etc/passwd", "/sys/../etc/passwd", "/proc/1/mem"})
    EXPECT_THAT(ReadChanges(ToJson(std::vector<Change>{{std::string(path).substr(1), "0", "1"}}))
                    .error()
                    .message,
                HasSubstr("not a setting below /sys"));
}

TEST_F(DoctorTest, CountersAreReadableOrHaveAReason) {
  const auto check = [&](const std::string& name) {
    for (const Check& one : ExamineCounterChecks(patient_))
      if (one.name == name) return one;
    return Check();
  };
  EXPECT_EQ(check("counter_energy").state, State::kNotAvailable);
  EXPECT_THAT(check("counter_energy").reason, HasSubstr("rapl: /sys/class/powercap has no"));
  EXPECT_EQ(check("counter_energy").fix, "modprobe intel_rapl_msr");
  Put("sys/class/powercap/intel-rapl:0/energy_uj", "5\n");
  Put("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "9\n");
  EXPECT_EQ(check("counter_energy").state, State::kOk);
  EXPECT_EQ(check("counter_energy").found, "rapl");
  Put("proc/cpuinfo", "vendor_id : GenuineIntel\nflags : cqm_mbm_local\n");
  EXPECT_THAT(check("counter_numa").fix, HasSubstr("mount -t resctrl"));
  EXPECT_EQ(check("counter_memory").fix, "apt install pcm");
}

TEST_F(DoctorTest, RendersTextAndJson) {
  Put(kCpu + "cpufreq/boost", "0\n");
  const std::vector<Check> checks = Examine(patient_);
  EXPECT_THAT(Render(checks, false), HasSubstr("WARN turbo"));
  EXPECT_THAT(Render(checks, false), HasSubstr("not available, because no cpufreq here"));
  const Json json = ToJson(checks);
  EXPECT_EQ(json.Find("checks")->array().size(), 14u);
  EXPECT_EQ(json.Find("warnings")->integer(), 2);  // the allocator too
}

}  // namespace
}  // namespace pinion::harness
