#include "harness/engines/server_counters.h"

#include <gtest/gtest.h>

namespace pinion::harness {
namespace {

constexpr char kMetrics[] =
    "# HELP vllm:num_preemptions_total Sequences sent back.\n"
    "# TYPE vllm:num_preemptions_total counter\n"
    "vllm:num_preemptions_total{model_name=\"a } b\"} 3\n"
    "vllm:num_preemptions_total{model_name=\"c\",engine=\"1\"} 4 1700000000000\n"
    "vllm:prefix_cache_queries_total 1.5e3\n"
    "vllm:prefix_cache_queries_total_seconds 99\n"
    "vllm:prefix_cache_hits_total{} 250\n";

TEST(ServerCounters, AreSummedOverTheirLabels) {
  const auto counters = ReadCounters(kMetrics);
  ASSERT_TRUE(counters);
  EXPECT_EQ(*counters, (ServerCounters{7, 1500, 250}));
}

TEST(ServerCounters, AreAbsentIfOneIsMissing) {
  EXPECT_FALSE(ReadCounters("vllm:num_preemptions_total 3\n"));
  EXPECT_FALSE(ReadCounters(""));
  EXPECT_FALSE(ReadCounters("vllm:num_preemptions_total{never closed 3\n"));
}

TEST(ServerCounters, DifferenceIsOfTheLoad) {
  EXPECT_EQ((ServerCounters{7, 1500, 250}) - (ServerCounters{5, 500, 50}),
            (ServerCounters{2, 1000, 200}));
}

}  // namespace
}  // namespace pinion::harness
