#include <gtest/gtest.h>

#include "harness/counters/counters.h"
#include "harness/stats/metrics.h"
#include "harness/trial/trial_samples.h"

namespace pinion::harness {
namespace {

double SampleOf(const TrialResult& result, const std::string& metric) {
  for (const MetricValue& sample : result.samples)
    if (sample.metric == metric) return sample.value;
  return -1;
}

TEST(AddCounters, StoresMetricsAndTheEnergyOfAToken) {
  std::vector<CounterReading> readings(2);
  readings[0] = {"numa", "resctrl", {{"memory_local_bytes_per_s", 7}}, "", "", 4};
  readings[1] = {"energy", "rapl", {{"package_watts", 50}}, "", "", 4};
  TrialResult result;
  AddCounters(readings, 100, result);
  EXPECT_EQ(SampleOf(result, "memory_local_bytes_per_s"), 7);
  EXPECT_EQ(SampleOf(result, "package_watts"), 50);
  EXPECT_EQ(SampleOf(result, "joules_per_token"), 2);
  for (const MetricValue& sample : result.samples)
    EXPECT_NE(FindMetric(sample.metric), nullptr) << sample.metric;
  EXPECT_TRUE(result.info.rest.Find("counters")->Find("energy"));
}

TEST(AddCounters, WithoutEnergyOrTokensHasNoEnergyOfAToken) {
  TrialResult none, idle;
  AddCounters({}, 100, none);
  EXPECT_TRUE(none.samples.empty());
  AddCounters({{"energy", "rapl", {{"package_watts", 50}}, "", "", 4}}, 0, idle);
  EXPECT_EQ(SampleOf(idle, "joules_per_token"), -1);
}

}  // namespace
}  // namespace pinion::harness
