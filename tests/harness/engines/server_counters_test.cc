#include "harness/engines/server_counters.h"

#include <gtest/gtest.h>

#include <string>

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

ServerCounters Counted(double preemptions, double queries, double hits) {
  ServerCounters counters;
  counters.preemptions = preemptions;
  counters.prefix_query_tokens = queries;
  counters.prefix_hit_tokens = hits;
  return counters;
}

TEST(ServerCounters, AreSummedOverTheirLabels) {
  const auto counters = ReadCounters(kMetrics);
  ASSERT_TRUE(counters);
  EXPECT_EQ(*counters, Counted(7, 1500, 250));
}

TEST(ServerCounters, StepsAreTakenByTheirKind) {
  std::string metrics = kMetrics;
  double value = 1;
  for (const char* name : {"seconds", "tokens", "bytes", "operations"})
    for (const char* kind : {"prefill", "decode"})
      metrics += "pinion:step_" + std::string(name) + "_total{model_name=\"m\",kind=\"" + kind +
                 "\"} " + std::to_string(value++) + "\n";
  metrics += "vllm:kv_cache_usage_perc{model_name=\"m\"} 0.5\n";
  const auto counters = ReadCounters(metrics);
  ASSERT_TRUE(counters);
  EXPECT_EQ(counters->prefill, (StepCounters{1, 3, 5, 7}));
  EXPECT_EQ(counters->decode, (StepCounters{2, 4, 6, 8}));
  EXPECT_EQ(counters->kv_used_share, 0.5);
  const ServerCounters none = *counters - *counters;
  EXPECT_EQ(none.decode, StepCounters());
  EXPECT_EQ(none.kv_used_share, 0.5) << "not a counter";
}

// A server with several engines may label each one's.
TEST(ServerCounters, OfSeveralEnginesAreSummedAndTheFullestCacheCounts) {
  std::string metrics = kMetrics;
  for (const char* engine : {"0", "1"}) {
    const std::string label = std::string("engine=\"") + engine + "\"";
    metrics += "pinion:step_tokens_total{" + label + ",kind=\"decode\"} 20\n";
    metrics +=
        "vllm:kv_cache_usage_perc{" + label + "} 0." + (engine[0] == '0' ? "75" : "5") + "\n";
  }
  const auto counters = ReadCounters(metrics);
  ASSERT_TRUE(counters);
  EXPECT_EQ(counters->decode.tokens, 40);
  EXPECT_EQ(counters->kv_used_share, 0.75);
}

TEST(ServerCounters, AreAbsentIfOneIsMissing) {
  EXPECT_FALSE(ReadCounters("vllm:num_preemptions_total 3\n"));
  EXPECT_FALSE(ReadCounters(""));
  EXPECT_FALSE(ReadCounters("vllm:num_preemptions_total{never closed 3\n"));
}

TEST(ServerCounters, DifferenceIsOfTheLoad) {
  EXPECT_EQ(Counted(7, 1500, 250) - Counted(5, 500, 50), Counted(2, 1000, 200));
}

}  // namespace
}  // namespace pinion::harness
