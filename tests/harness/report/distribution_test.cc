#include "harness/report/distribution.h"

#include <gtest/gtest.h>

namespace pinion::harness {
namespace {

double TailOf(size_t n, size_t fewest) { return TailQuantile({"ttft_s", 8, n, {1, 2, 3}, fewest}); }

// Twelve trials of 17 requests each are 204 requests, but none of the trials tells where the last
// twentieth begins.
TEST(TailQuantile, NeedsTrialsThatReachIt) {
  EXPECT_EQ(TailOf(204, 17), 0.90);
  EXPECT_EQ(TailOf(204, 19), 0.95);
  EXPECT_EQ(TailOf(204, 8), 0.75);
  EXPECT_EQ(TailOf(80, 40), 0.90) << "and enough of them altogether";
  EXPECT_EQ(TailOf(40, 40), 0.75);
  EXPECT_EQ(TailOf(204, 0), 0.95) << "one trial of them all";
}

}  // namespace
}  // namespace pinion::harness
