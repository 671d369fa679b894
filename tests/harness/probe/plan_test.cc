#include "harness/probe/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace pinion::harness {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(ProbePlan, CountsEveryThreadUpToEightThenDoubles) {
  EXPECT_THAT(ThreadCounts(1), ElementsAre(1));
  EXPECT_THAT(ThreadCounts(3), ElementsAre(1, 2, 3));
  EXPECT_THAT(ThreadCounts(8), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(ThreadCounts(48), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 48));
}

TEST(ProbePlan, FewCoresArePairedEachWithEach) {
  EXPECT_THAT(Pairs({5}, 10), IsEmpty());
  EXPECT_THAT(Pairs({0, 2, 4}, 3), ElementsAre(Pair(0, 2), Pair(0, 4), Pair(2, 4)));
}

TEST(ProbePlan, ManyCoresArePairedWithinTheLimit) {
  std::vector<int> cpus(200);
  std::iota(cpus.begin(), cpus.end(), 0);
  const auto pairs = Pairs(cpus, 128);
  EXPECT_EQ(pairs.size(), 128u);
  EXPECT_EQ((std::set<std::pair<int, int>>(pairs.begin(), pairs.end()).size()), 128u);
  bool far = false;
  for (const auto& [a, b] : pairs) far |= b - a > 100;
  EXPECT_TRUE(far);
}

TEST(ProbePlan, ThreadsReadAllPartsOfTheirOwnNode) {
  // One thread on node 0 roams over what node 0's four cores touched; node 1's stay unread.
  EXPECT_THAT(PartsOfThreads({0}, {0, 0, 0, 0, 1, 1}), ElementsAre(ElementsAre(0, 1, 2, 3)));
  EXPECT_THAT(PartsOfThreads({0, 1, 0}, {0, 0, 1, 0}),
              ElementsAre(ElementsAre(0, 3), ElementsAre(2), ElementsAre(1)));
  EXPECT_THAT(PartsOfThreads({7, 7}, {7}), ElementsAre(ElementsAre(0), IsEmpty()));
}

TEST(ProbePlan, ACacheIsReadByHalvesOfItsShares) {
  const Cache l3{3, 32u << 20, {0, 1, 2, 3}};
  EXPECT_EQ(CacheReadBytes(l3, 1 << 20, {0}), 16u << 20);
  EXPECT_EQ(CacheReadBytes(l3, 1 << 20, {0, 1, 9}), 8u << 20);
  EXPECT_EQ(CacheReadBytes(l3, 4 << 20, {0, 1, 2, 3}), 0u);  // 4 MiB fit the cache before it
}

}  // namespace
}  // namespace pinion::harness
