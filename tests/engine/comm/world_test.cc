#include "engine/comm/world.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <initializer_list>
#include <utility>

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
  // Whoever is bound has CPUs of its own.
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

}  // namespace
}  // namespace pinion
