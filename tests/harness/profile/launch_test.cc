#include "harness/profile/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/base/strings.h"

namespace pinion::harness {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

Machine FourCores() {
  Machine machine;
  machine.name = "Imagined CPU";
  machine.this_system = false;
  for (int id = 0; id < 4; ++id) machine.cpus.push_back({id, id, 0, 0, 0, 0});
  machine.nodes.push_back({0, {0, 1, 2, 3}, uint64_t{8} << 30, true});
  return machine;
}

LaunchEnvironment Here(const std::vector<int>& allowed = {0, 1, 2, 3}) {
  LaunchEnvironment here;
  here.machine = FourCores();
  here.budget = *ComputeBudget(here.machine, {allowed, std::nullopt});
  here.fingerprint = MachineFingerprint(here.machine);
  return here;
}

LaunchRequest Request() {
  LaunchRequest request;
  request.profile.objective = "throughput";
  request.profile.configuration.options.model = "preset:tiny";
  request.profile.machine = Here().fingerprint;
  request.profile.cpus = Json(std::vector<int>{0, 1, 2, 3});
  return request;
}

// vLLM's variables beat the profile, so a test must not meet the person's own.
class PlanLaunchTest : public testing::Test {
 protected:
  void SetUp() override { ClearEnvironment(); }
  void TearDown() override { ClearEnvironment(); }
  static void ClearEnvironment() {
    for (const char* name :
         {"VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_OMP_THREADS_BIND", "VLLM_CPU_NUM_OF_RESERVED_CPU"})
      unsetenv(name);
  }
};

TEST_F(PlanLaunchTest, NoWarningsOnTheSameMachine) {
  const auto launch = PlanLaunch(Request(), Here());
  ASSERT_TRUE(launch) << launch.error().message;
  EXPECT_THAT(launch->warnings, IsEmpty());
  EXPECT_THAT(launch->command.environment, IsEmpty());
  EXPECT_EQ(launch->command.arguments[1], "serve");
  EXPECT_EQ(launch->command.arguments[2], "preset:tiny");
}

TEST_F(PlanLaunchTest, TellsTheServerItsProfile) {
  LaunchRequest request = Request();
  request.profile_path = "a profile.json";
  const auto launch = PlanLaunch(request, Here());
  ASSERT_TRUE(launch) << launch.error().message;
  const auto& arguments = launch->command.arguments;
  EXPECT_EQ(arguments[arguments.size() - 2], "--from-profile");
  EXPECT_EQ(arguments.back(), "a profile.json");
}

TEST_F(PlanLaunchTest, ALauncherStartsTheServer) {
  LaunchRequest request = Request();
  request.launcher = {"mpirun", "-n", "2"};
  const auto launch = PlanLaunch(request, Here());
  ASSERT_TRUE(launch) << launch.error().message;
  const auto& arguments = launch->command.arguments;
  EXPECT_EQ(std::vector(arguments.begin(), arguments.begin() + 3), request.launcher);
  EXPECT_EQ(arguments[4], "serve");
}

TEST_F(PlanLaunchTest, PassesEverySettingThatIsNotTheDefault) {
  LaunchRequest request = Request();
  auto& options = request.profile.configuration.options;
  options.threads_bind = "0-1|2-3";
  options.tensor_parallel = 2;
  options.kv_cache_bytes = (uint64_t{3} << 30) / 2;
  options.isa = "scalar";
  options.dtype = "float32";
  options.block_size = 16;
  options.max_num_batched_tokens = 512;
  options.max_num_seqs = 9;
  options.max_model_len = 100;
  options.max_step_ms = 250;
  options.prefix_caching = false;
  options.moe_prepack = false;
  options.seed = 5;
  request.port = 0;
  request.served_model_name = "it's me";
  const auto launch = PlanLaunch(request, Here());
  ASSERT_TRUE(launch) << launch.error().message;
  Command command = launch->command;
  command.arguments[0] = "pinion";
  EXPECT_EQ(ShellText(command),
            "pinion serve preset:tiny --threads-bind '0-1|2-3' --kv-cache-space 1.5 "
            "--tensor-parallel-size 2 --isa scalar --dtype float32 "
            "--max-num-batched-tokens 512 --max-num-seqs 9 --max-model-len 100 "
            "--max-step-ms 250 --block-size 16 --no-enable-prefix-caching --moe-prepack 0 --seed 5 "
            "--host "
            "127.0.0.1 --port 0 "
            "--served-model-name 'it'\\''s me'");
}

TEST_F(PlanLaunchTest, WarnsOfAnotherMachineOnce) {
  LaunchRequest request = Request();
  request.profile.machine.Set("cpu_model", "Another CPU");
  request.profile.machine.Set("cores", 128);
  const auto launch = PlanLaunch(request, Here());
  ASSERT_TRUE(launch);
  ASSERT_EQ(launch->warnings.size(), 1u);
  EXPECT_THAT(launch->warnings[0], HasSubstr("cpu_model was \"Another CPU\", is \"Imagined CPU\""));
  EXPECT_THAT(launch->warnings[0], HasSubstr("cores was 128, is 4"));
}

TEST_F(PlanLaunchTest, WarnsOfCpusThatAreGone) {
  const auto launch = PlanLaunch(Request(), Here({0, 3}));
  ASSERT_TRUE(launch) << launch.error().message;
  EXPECT_THAT(launch->warnings, Contains(HasSubstr("CPUs 1-2, which the profile was measured on")));
}

TEST_F(PlanLaunchTest, PlansABindingAgainWithinTheCpusThatItGets) {
  LaunchRequest request = Request();
  request.profile.configuration.options.threads_bind = "0-2";
  request.profile.evidence = *Json::Parse(R"({"plan":{"ranks":[{"cpus":[0,1,2]}]}})");
  const auto launch = PlanLaunch(request, Here({0, 3}));
  ASSERT_TRUE(launch) << launch.error().message;
  EXPECT_THAT(ShellText(launch->command), HasSubstr(" --threads-bind 0,3 "));
  EXPECT_THAT(launch->warnings,
              Contains(HasSubstr("threads_bind is 0,3 in place of the profile's 0-2")));
  EXPECT_THAT(launch->warnings,
              Contains(HasSubstr("2 threads on CPUs 0,3; measured: 3 threads on CPUs 0-2")));
}

TEST_F(PlanLaunchTest, RefusesAUsersOwnBindingOnCpusThatAreGone) {
  setenv("VLLM_CPU_OMP_THREADS_BIND", "0-2", 1);
  const auto launch = PlanLaunch(Request(), Here({0, 3}));
  ASSERT_FALSE(launch);
  EXPECT_EQ(ExitCode(launch.error()), 1);
  EXPECT_THAT(launch.error().message, HasSubstr("cannot be launched here"));
}

TEST_F(PlanLaunchTest, TellsTheServerWhichHostsItMayBeCalled) {
  LaunchRequest request = Request();
  request.allowed_hosts = {"pinion", "*"};
  const auto launch = PlanLaunch(request, Here());
  ASSERT_TRUE(launch) << launch.error().message;
  EXPECT_THAT(ShellText(launch->command),
              testing::EndsWith("--allowed-hosts pinion --allowed-hosts '*'"));
}

TEST_F(PlanLaunchTest, RefusesAMissingModel) {
  LaunchRequest request = Request();
  request.profile.configuration.options.model = "/no/such/model";
  const auto launch = PlanLaunch(request, Here());
  ASSERT_FALSE(launch);
  EXPECT_EQ(ExitCode(launch.error()), 1);
  EXPECT_THAT(launch.error().message, HasSubstr("/no/such/model"));
}

TEST_F(PlanLaunchTest, RefusesSettingsThatCannotBe) {
  LaunchRequest request = Request();
  request.profile.configuration.options.isa = "neon";
  auto launch = PlanLaunch(request, Here());
  ASSERT_FALSE(launch);
  EXPECT_EQ(ExitCode(launch.error()), 1);
  EXPECT_THAT(launch.error().message, HasSubstr("'neon' is unknown"));
  request = Request();
  request.profile.configuration.options.max_num_seqs = 0;
  launch = PlanLaunch(request, Here());
  ASSERT_FALSE(launch);
  EXPECT_THAT(launch.error().message, HasSubstr("--max-num-seqs is 0"));
}

TEST_F(PlanLaunchTest, TheEnvironmentBeatsTheProfileAndIsNamed) {
  LaunchRequest request = Request();
  request.profile.configuration.options.threads_bind = "0-1";
  setenv("VLLM_CPU_OMP_THREADS_BIND", "0-2", 1);
  const auto launch = PlanLaunch(request, Here());
  ASSERT_TRUE(launch) << launch.error().message;
  EXPECT_THAT(launch->warnings, Contains(HasSubstr("sets threads_bind to \"0-2\"")));
  EXPECT_THAT(launch->command.arguments, Contains("0-2"));
}

TEST_F(PlanLaunchTest, AppendsTheAllocatorToExistingPreloads) {
  LaunchRequest request = Request();
  request.profile.configuration.runtime.allocator = "tcmalloc";
  LaunchEnvironment here = Here();
  const auto folder = std::filesystem::temp_directory_path() / StrCat("pinion-launch-", getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "libtcmalloc_minimal.so.4") << "x";
  here.runtime.library_folders = {"/nonexistent", folder.string()};
  here.runtime.preload = "/a.so";
  const auto launch = PlanLaunch(request, here);
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(launch);
  ASSERT_EQ(launch->command.environment.size(), 1u);
  EXPECT_EQ(launch->command.environment[0].first, "LD_PRELOAD");
  EXPECT_EQ(launch->command.environment[0].second,
            "/a.so:" + (folder / "libtcmalloc_minimal.so.4").string());
}

TEST_F(PlanLaunchTest, LeavesHugePagesOutIfTheProfileDoes) {
  LaunchRequest request = Request();
  request.profile.configuration.runtime.huge_pages = "off";
  LaunchEnvironment here = Here();
  here.runtime.huge_pages = "always [madvise] never";
  auto launch = PlanLaunch(request, here);
  ASSERT_TRUE(launch);
  ASSERT_EQ(launch->command.environment.size(), 1u);
  EXPECT_EQ(launch->command.environment[0].first, "PINION_HUGE_PAGES");
  here.runtime.huge_pages = "always madvise [never]";
  launch = PlanLaunch(request, here);
  ASSERT_TRUE(launch);
  EXPECT_THAT(launch->command.environment, IsEmpty());
  EXPECT_THAT(launch->warnings, Contains(HasSubstr("huge_pages=off has no effect here")));
}

TEST_F(PlanLaunchTest, ReplicasAreEnginesOfOneServer) {
  LaunchRequest request = Request();
  request.profile.configuration.replicas = 2;
  request.host = "0.0.0.0";
  request.port = 0;
  const auto launch = PlanLaunch(request, Here());
  ASSERT_TRUE(launch) << launch.error().message;
  EXPECT_THAT(
      ShellText(launch->command),
      testing::EndsWith(" serve preset:tiny --data-parallel-size 2 --host 0.0.0.0 --port 0"));
}

TEST_F(PlanLaunchTest, RefusesMoreReplicasThanCpus) {
  LaunchRequest request = Request();
  request.profile.configuration.replicas = 5;
  const auto launch = PlanLaunch(request, Here());
  ASSERT_FALSE(launch);
  EXPECT_EQ(ExitCode(launch.error()), 1);
  EXPECT_THAT(launch.error().message,
              HasSubstr("5 replicas of 1 rank (-tp 1 -pp 1) cannot have a CPU"));
}

TEST_F(PlanLaunchTest, WarnsOfAMissingAllocator) {
  LaunchRequest request = Request();
  request.profile.configuration.runtime.allocator = "tcmalloc";
  LaunchEnvironment here = Here();
  here.runtime.library_folders = {"/nonexistent"};
  const auto launch = PlanLaunch(request, here);
  ASSERT_TRUE(launch);
  EXPECT_THAT(launch->command.environment, IsEmpty());
  EXPECT_THAT(launch->warnings, Contains(HasSubstr("install libtcmalloc-minimal4")));
}

}  // namespace
}  // namespace pinion::harness
