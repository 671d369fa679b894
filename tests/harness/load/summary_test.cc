#include "harness/load/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace pinion::harness {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMs = 1'000'000;

// Two requests: sent 5 ms after they were due, first token after 100 ms, then one each 10 ms.
LoadReport Report(bool open_loop) {
  LoadReport report;
  report.result.open_loop = open_loop;
  for (int i = 0; i < 2; ++i) {
    RequestRecord record;
    record.scheduled_ns = i * 1000 * kMs;
    record.sent_ns = record.scheduled_ns + 5 * kMs;
    for (int token = 0; token < 5; ++token)
      record.token_ns.push_back(record.sent_ns + (100 + 10 * token) * kMs);
    record.prompt_tokens = 7;
    record.output_tokens = 9;  // several came at once
    report.result.requests.push_back(record);
    report.result.generator.late_s.push_back(0.005);
  }
  return report;
}

double Number(const Json& json, const char* key) { return json.Find(key)->number(); }

TEST(LoadSummary, FollowsTheFormulas) {
  const Json json = ToJson(Report(false), false);
  EXPECT_DOUBLE_EQ(Number(json, "median_ttft_ms"), 100);
  EXPECT_DOUBLE_EQ(Number(json, "mean_tpot_ms"), 40.0 / 8);  // by the tokens that were counted
  EXPECT_DOUBLE_EQ(Number(json, "median_itl_ms"), 10);
  EXPECT_DOUBLE_EQ(Number(json, "median_e2el_ms"), 140);
  EXPECT_NEAR(Number(json, "duration"), 1.14, 1e-9);
  EXPECT_NEAR(Number(json, "request_throughput"), 2 / 1.14, 1e-9);
  EXPECT_NEAR(Number(json, "output_throughput"), 18 / 1.14, 1e-9);
  EXPECT_NEAR(Number(json, "total_token_throughput"), 32 / 1.14, 1e-9);
  EXPECT_EQ(json.Find("total_input_tokens")->integer(), 14);
  EXPECT_TRUE(json.Find("request_goodput")->is_null());
}

TEST(LoadSummary, OpenLoopCountsFromTheTimeARequestWasDue) {
  const Json json = ToJson(Report(true), false);
  EXPECT_DOUBLE_EQ(Number(json, "median_ttft_ms"), 105);
  EXPECT_DOUBLE_EQ(Number(json, "median_e2el_ms"), 145);
  EXPECT_DOUBLE_EQ(Number(json, "median_itl_ms"), 10);
}

TEST(LoadSummary, PercentilesOnlyIfTheSampleSupportsThem) {
  LoadReport report = Report(false);
  while (report.result.requests.size() < 90)
    report.result.requests.push_back(report.result.requests.back());
  const Json json = ToJson(report, false);
  EXPECT_TRUE(json.Find("p95_ttft_ms")->is_number());
  EXPECT_TRUE(json.Find("p99_ttft_ms")->is_null());
  EXPECT_TRUE(ToJson(Report(false), false).Find("p90_ttft_ms")->is_null());
}

TEST(LoadSummary, ThePeakIsOfTheFullestSecondOfTheLoad) {
  LoadReport report = Report(false);
  report.result.start_ns = 500 * kMs;
  report.result.requests.resize(1);
  RequestRecord& record = report.result.requests[0];
  record.token_ns.clear();
  for (const int ms : {0, 400, 999, 1000, 1001, 1500, 1999, 2000})
    record.token_ns.push_back((500 + ms) * kMs);
  record.output_tokens.reset();
  EXPECT_DOUBLE_EQ(Number(ToJson(report, false), "max_output_tokens_per_s"), 4);
  record.output_tokens = 16;  // two with every event
  EXPECT_DOUBLE_EQ(Number(ToJson(report, false), "max_output_tokens_per_s"), 8);
}

TEST(LoadSummary, FailuresDoNotCountButAreNamed) {
  LoadReport report = Report(false);
  report.slo.ttft_s = 0.101;
  report.result.requests[1].error = "HTTP 503: out of order";
  const Json json = ToJson(report, true);
  EXPECT_EQ(json.Find("completed")->integer(), 1);
  EXPECT_EQ(json.Find("failed")->integer(), 1);
  EXPECT_NEAR(Number(json, "request_goodput"), 1 / 0.14, 1e-9);
  EXPECT_EQ(json.Find("pinion")->Find("requests")->array().size(), 2u);
  EXPECT_THAT(Render(report), HasSubstr("1 x  HTTP 503: out of order"));
}

TEST(LoadSummary, HandlesALoadWithoutCompleteRequests) {
  LoadReport report;
  EXPECT_TRUE(ToJson(report, true).Find("median_ttft_ms")->is_null());
  EXPECT_THAT(Render(report), HasSubstr("0 of 0 requests"));
}

TEST(GeneratorFaults, NamesALateOrBusyGenerator) {
  ServerLoadResult result = Report(true).result;
  EXPECT_TRUE(GeneratorFaults(result).empty());
  result.generator.lag_s.assign(100, 0.003);  // 3 % of TTFT
  result.generator.cpu_share = 0.9;
  EXPECT_EQ(GeneratorFaults(result).size(), 2u);
}

TEST(GeneratorFaults, OneWakeUpInTwentyMayBeLate) {
  ServerLoadResult result = Report(true).result;
  result.generator.lag_s.assign(100, 0);
  const auto late = [&](size_t count) {
    std::fill_n(result.generator.lag_s.begin(), count, 0.003);
    return !GeneratorFaults(result).empty();
  };
  EXPECT_FALSE(late(4));
  EXPECT_TRUE(late(7));
}

}  // namespace
}  // namespace pinion::harness
