#include "engine/kv/free_runs.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace pinion {
namespace {

// The result that Find must give, by looking at every block.
FreeRuns::Run Search(const std::vector<bool>& free, size_t blocks) {
  FreeRuns::Run longest;
  for (size_t begin = 0; begin < free.size();) {
    size_t end = begin;
    while (end < free.size() && free[end]) ++end;
    const FreeRuns::Run run{static_cast<int32_t>(begin), static_cast<int32_t>(end)};
    if (run.size() > longest.size()) longest = run;
    if (longest.size() >= blocks) break;
    begin = end + 1;
  }
  return longest;
}

TEST(FreeRuns, AgreeWithAListOfBlocksOverRandomOperations) {
  constexpr size_t kBlocks = 40;
  std::mt19937 rng(20261121);
  FreeRuns runs(kBlocks);
  std::vector<bool> free(kBlocks, true);
  size_t count = kBlocks;
  for (int step = 0; step < 20000; ++step) {
    const size_t block = rng() % kBlocks;
    ASSERT_EQ(runs.Holds(static_cast<int32_t>(block)), free[block]);
    if (free[block]) {
      runs.Take(static_cast<int32_t>(block));
    } else {
      runs.Add(static_cast<int32_t>(block));
    }
    count += free[block] ? -1 : 1;
    free[block] = !free[block];
    ASSERT_EQ(runs.size(), count);
    ASSERT_EQ(runs.empty(), count == 0);
    if (count == 0) continue;
    const size_t wanted = 1 + rng() % 6;
    const FreeRuns::Run got = runs.Find(wanted), want = Search(free, wanted);
    ASSERT_EQ(got.begin, want.begin) << "step " << step;
    ASSERT_EQ(got.end, want.end) << "step " << step;
  }
}

TEST(FreeRunsDeathTest, AddingOrTakingABlockTwiceIsABug) {
  FreeRuns runs(3);
  EXPECT_DEATH(runs.Add(1), "free already");
  runs.Take(1);
  EXPECT_DEATH(runs.Take(1), "not free");
}

}  // namespace
}  // namespace pinion
