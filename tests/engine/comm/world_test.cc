#include "engine/comm/world.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "engine/comm/heartbeat.h"

namespace pinion {
namespace {

using Variables = std::initializer_list<std::pair<const char*, const char*>>;

// A process whose launcher, if any, has set exactly these variables.
class LaunchedTest : public ::testing::Test {
 protected:
  void SetUp() override { Set({}); }
  void TearDown() override { Set({}); }

  static void Set(Variables variables) {
    for (const char* name :
         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
          "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_MCA_hwloc_base_binding_policy", "PMIX_RANK",
          "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_LOCALID", "SLURM_PROCID"})
      unsetenv(name);
    for (const auto& [name, value] : variables) setenv(name, value, 1);
  }

  static void Expect(size_t process, size_t processes, size_t local, size_t locals, bool shares) {
    const auto launched = Launched();
    ASSERT_TRUE(launched);
    EXPECT_EQ(launched->process, process);
    EXPECT_EQ(launched->processes, processes);
    EXPECT_EQ(launched->local, local);
    EXPECT_EQ(launched->locals, locals);
    EXPECT_EQ(launched->shares_cpus, shares);
  }
};

TEST_F(LaunchedTest, AProcessWithoutOthersIsAlone) {
  EXPECT_FALSE(Launched());
  Set({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}});
  EXPECT_FALSE(Launched());
  const auto world = JoinWorld();
  ASSERT_TRUE(world) << world.error().message;
  EXPECT_EQ(*world, nullptr);
}

TEST_F(LaunchedTest, OpenMpiTellsPlacesInTheWorldAndOnTheHost) {
  Set({{"OMPI_COMM_WORLD_RANK", "5"},
       {"OMPI_COMM_WORLD_SIZE", "6"},
       {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}});
  Expect(5, 6, 2, 3, true);
  // A process that is bound has CPUs of its own.
  setenv("OMPI_MCA_hwloc_base_binding_policy", "core", 1);
  Expect(5, 6, 2, 3, false);
  setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
  Expect(5, 6, 2, 3, true);
}

TEST_F(LaunchedTest, SlurmTellsThemInVariablesOfItsOwn) {
  // As srun --mpi=pmix sets them on the second of two nodes with 4 tasks each.
  Set({{"PMIX_RANK", "6"},
       {"SLURM_PROCID", "6"},
       {"SLURM_STEP_NUM_TASKS", "8"},
       {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
       {"SLURM_LOCALID", "2"}});
  Expect(6, 8, 2, 4, false);
  Set({{"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}});
  EXPECT_FALSE(Launched());
}

TEST_F(LaunchedTest, APlaceIsLeftToAChildOnce) {
  Set({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  LeaveWorldToChild();
  EXPECT_FALSE(Launched());
  Set({{"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}});
  LeaveWorldToChild();
  EXPECT_FALSE(Launched());
}

// A world of this process alone, whose end does as it is told.
class LateWorld final : public Communicator {
 public:
  explicit LateWorld(std::function<void()> end) : end_(std::move(end)) {}
  ~LateWorld() override { end_(); }
  size_t process() const override { return 0; }
  size_t processes() const override { return 1; }
  void Gather(const void* mine, size_t bytes, void* all) override { std::memcpy(all, mine, bytes); }
  void GatherAtLeader(const void*, const std::vector<size_t>&, void*) override {}
  void Broadcast(void*, size_t) override {}
  void Send(size_t, int, const void*, size_t) override {}
  void Receive(size_t, int, void*, size_t) override {}
  std::unique_ptr<Communicator> Part(int) override { return nullptr; }

 private:
  const std::function<void()> end_;
};

constexpr auto kPatience = std::chrono::nanoseconds(SilenceWatch::kLostNs);
constexpr auto kBeats = 3 * std::chrono::nanoseconds(SilenceWatch::kBeatNs);

// As on a host that stands still: its processes do nothing for longer than leaving may take.
void StandStill() {
  const pid_t self = getpid(), other = fork();
  if (other == 0) {
    kill(self, SIGSTOP);
    std::this_thread::sleep_for(kPatience + kBeats);
    kill(self, SIGCONT);
    _exit(0);
  }
  waitpid(other, nullptr, 0);
  std::this_thread::sleep_for(kBeats);
}

[[noreturn]] void LeaveAndExit(std::function<void()> end) {
  Leave(std::make_unique<LateWorld>(std::move(end)), 7);
  std::fputs("left", stderr);
  _exit(0);
}

TEST(LeaveDeathTest, AProcessThatCannotLeaveEndsWithTheResultOfItsWork) {
  const auto never = [] {
    for (;;) pause();
  };
  EXPECT_EXIT(LeaveAndExit(never), ::testing::ExitedWithCode(7),
              "cannot end together: .* lost after the work was done");
}

TEST(LeaveDeathTest, AHostThatStandsStillIsWaitedFor) {
  EXPECT_EXIT(LeaveAndExit(StandStill), ::testing::ExitedWithCode(0), "left");
}

TEST(Leave, AProcessThatHasJoinedNobodyHasNobodyToLeave) { Leave(nullptr, 7); }

}  // namespace
}  // namespace pinion
