#include "harness/load/steady.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace pinion::harness {
namespace {

constexpr int64_t kMillisecond = 1'000'000;

// A closed loop whose clients take turns without a pause; the tokens of an answer come one a
// `step_ms`, the k-th of all requests being `slower(k)` times as slow.
ServerLoadResult Loop(
    int clients, int requests, int tokens, double step_ms,
    double (*slower)(int) = [](int) { return 1.0; }) {
  ServerLoadResult load;
  load.start_ns = 500 * kMillisecond;
  std::vector<int64_t> free_ns(static_cast<size_t>(clients), load.start_ns);
  for (int i = 0; i < requests; ++i) {
    int64_t& at_ns = *std::min_element(free_ns.begin(), free_ns.end());
    RequestRecord record;
    record.sent_ns = at_ns;
    for (int k = 0; k < tokens; ++k)
      record.token_ns.push_back(at_ns += std::llround(step_ms * slower(i) * kMillisecond));
    record.ended_ns = at_ns;
    load.end_ns = std::max(load.end_ns, at_ns);
    load.requests.push_back(record);
  }
  return load;
}

ServingSummary Steady(const ServerLoadResult& load, int clients, const Slo& slo = {}) {
  return SummariseWindow(load, SteadyWindowOf(load, clients), slo);
}

TEST(Steady, LeavesOutTheRampAndTheDrain) {
  const ServerLoadResult load = Loop(2, 8, 10, 1);  // four turns of 10 ms
  const SteadyWindow window = SteadyWindowOf(load, 2);
  ASSERT_TRUE(window.is_steady);
  EXPECT_EQ(window.start_ns, (500 + 10) * kMillisecond);
  EXPECT_EQ(window.end_ns, (500 + 40) * kMillisecond);
  const ServingSummary summary = Steady(load, 2);
  EXPECT_EQ(summary.requests, 6u);
  EXPECT_DOUBLE_EQ(summary.window_s, 0.03);
  EXPECT_DOUBLE_EQ(summary.output_tokens_per_s, 2000);
}

// The last turn is alone on the engine, and says nothing of two clients.
TEST(Steady, EndsWhenTheFirstClientHasNoFurtherRequest) {
  ServerLoadResult load = Loop(2, 9, 10, 1);
  const SteadyWindow window = SteadyWindowOf(load, 2);
  EXPECT_EQ(window.end_ns, (500 + 40) * kMillisecond);
  EXPECT_EQ(load.end_ns, (500 + 50) * kMillisecond);
  EXPECT_DOUBLE_EQ(Steady(load, 2).output_tokens_per_s, 2000);
  EXPECT_LT(
      Summarise(std::vector<RequestTrace>{{500 * kMillisecond, load.requests.back().token_ns}})
          .output_tokens_per_s,
      2000);
}

// One answer of 40 ms, five of 20 ms and then the rest of 10 ms: the rate rises until the seventh.
TEST(Steady, BeginsWhenTheRateNoLongerRises) {
  const auto warming = [](int request) { return request < 1 ? 4.0 : request < 6 ? 2.0 : 1.0; };
  const ServerLoadResult load = Loop(1, 40, 10, 1, warming);
  const SteadyWindow window = SteadyWindowOf(load, 1);
  ASSERT_TRUE(window.is_steady);
  EXPECT_GE(window.start_ns, (500 + 40 + 3 * 20) * kMillisecond);
  EXPECT_NEAR(Steady(load, 1).output_tokens_per_s, 1000, 60);
  const ServerLoadResult even = Loop(1, 40, 10, 1);
  EXPECT_EQ(SteadyWindowOf(even, 1).start_ns, (500 + 10) * kMillisecond) << "no slope, no delay";
}

TEST(Steady, ALoadWithoutSuchAPartIsTakenWhole) {
  const ServerLoadResult load = Loop(4, 8, 10, 1);
  const SteadyWindow window = SteadyWindowOf(load, 4);
  EXPECT_FALSE(window.is_steady);
  EXPECT_EQ(Steady(load, 4).requests, 8u);
  EXPECT_DOUBLE_EQ(Steady(load, 4).window_s, 0.02);
  EXPECT_FALSE(SteadyWindowOf(ServerLoadResult(), 1).is_steady);
}

TEST(Steady, HasAsManyRequestsAsWereToldForPercentiles) {
  for (const int clients : {1, 3, 8}) {
    const int requests = RequestsForSteadyWindow(clients) + 5;
    const ServerLoadResult load = Loop(clients, requests, 7, 1.5);
    ASSERT_TRUE(SteadyWindowOf(load, clients).is_steady);
    const int wanted = requests - 2 * clients + 1;
    EXPECT_EQ(LeastForSteady(clients, wanted), requests);
    EXPECT_GE(static_cast<int>(Steady(load, clients).requests), wanted);
  }
}

TEST(Steady, GoodputIsOfItsTime) {
  const ServerLoadResult load = Loop(2, 8, 10, 1);
  EXPECT_DOUBLE_EQ(Steady(load, 2, {.ttft_s = {}, .tpot_s = {}, .e2el_s = 1.0}).goodput, 200);
  EXPECT_DOUBLE_EQ(Steady(load, 2, {.ttft_s = {}, .tpot_s = {}, .e2el_s = 1e-3}).goodput, 0);
}

// A request that was cut off kept the engine busy: its tokens count, its times do not.
TEST(Steady, TokensOfCutRequestsCount) {
  ServerLoadResult load = Loop(1, 6, 10, 1);
  load.requests.back().cut = true;
  load.requests.back().error = "cut off";
  EXPECT_EQ(Steady(load, 1).requests, 4u);
  EXPECT_DOUBLE_EQ(Steady(load, 1).output_tokens_per_s, 1000);
}

// Four requests side by side, three of which had 9 of their 10 tokens after 9 ms. A fourth of the
// tokens would make an engine that is a little too slow look four times as slow.
TEST(Steady, ALoadTakenWholeIsCountedUntilItIsCut) {
  ServerLoadResult load = Loop(4, 4, 10, 1);
  for (size_t i = 1; i < load.requests.size(); ++i) {
    RequestRecord& record = load.requests[i];
    record.cut = true;
    record.error = "cut off";
    record.token_ns.pop_back();
  }
  const ServingSummary summary = SummariseWindow(load, {load.start_ns, load.end_ns, false},
                                                 {.ttft_s = {}, .tpot_s = {}, .e2el_s = 1.0});
  EXPECT_EQ(summary.requests, 1u);
  EXPECT_DOUBLE_EQ(summary.window_s, 0.01);
  EXPECT_DOUBLE_EQ(summary.output_tokens_per_s, (10 + 3 * 9) / 0.01);
  EXPECT_DOUBLE_EQ(summary.goodput, 100);
}

// An open loop: a request every 10 ms, whose tokens come 1 ms apart, the first after `first_ms(k)`.
ServerLoadResult Arrivals(int requests, int tokens, int64_t (*first_ms)(int)) {
  ServerLoadResult load;
  load.open_loop = true;
  load.start_ns = 500 * kMillisecond;
  for (int i = 0; i < requests; ++i) {
    RequestRecord record;
    record.scheduled_ns = record.sent_ns = load.start_ns + i * 10 * kMillisecond;
    for (int k = 0; k < tokens; ++k)
      record.token_ns.push_back(record.sent_ns + (first_ms(i) + k) * kMillisecond);
    record.ended_ns = record.token_ns.back();
    load.end_ns = std::max(load.end_ns, record.ended_ns);
    load.requests.push_back(record);
  }
  return load;
}

const LoadLevel kRate = LoadLevel::AtRate(100);

ServingSummary SteadyOpen(const ServerLoadResult& load, const Slo& slo = {}) {
  return SummariseWindow(load, SteadyWindowOf(load, kRate), slo);
}

TEST(SteadyOpen, ARequestCountsIfItWasDueWithin) {
  const ServerLoadResult load = Arrivals(20, 5, [](int) { return int64_t{100}; });
  const SteadyWindow window = SteadyWindowOf(load, kRate);
  ASSERT_TRUE(window.is_steady);
  EXPECT_GE(window.start_ns, (500 + 10) * kMillisecond) << "two of twenty were due by then";
  EXPECT_EQ(window.end_ns, (500 + 190) * kMillisecond) << "when the last was due";
  const ServingSummary summary = SteadyOpen(load);
  EXPECT_GE(summary.requests, 14u) << "although some were answered after its end";
  EXPECT_LE(summary.requests, 18u);
  for (const double ttft_s : summary.ttft_s) EXPECT_DOUBLE_EQ(ttft_s, 0.1);
}

// The first five of fifty found an empty server; they do not belong to a steady load.
TEST(SteadyOpen, TheFirstTenthIsLeftOut) {
  const auto slow = [](int request) { return int64_t{request < 5 ? 1 : 8}; };
  const ServingSummary summary = SteadyOpen(Arrivals(50, 2, slow));
  EXPECT_EQ(summary.requests, 45u);
  for (const double ttft_s : summary.ttft_s) EXPECT_DOUBLE_EQ(ttft_s, 0.008);
}

TEST(SteadyOpen, TokensAreThoseOfItsTime) {
  const ServingSummary summary = SteadyOpen(Arrivals(100, 4, [](int) { return int64_t{2}; }));
  EXPECT_NEAR(summary.output_tokens_per_s, 400, 8);  // four tokens every 10 ms
}

TEST(SteadyOpen, AFewRequestsAreTakenWhole) {
  const ServerLoadResult load = Arrivals(9, 2, [](int) { return int64_t{2}; });
  EXPECT_FALSE(SteadyWindowOf(load, kRate).is_steady);
  EXPECT_EQ(SteadyOpen(load).requests, 9u);
}

// Nine of ten requests of an overloaded server were cut off: the answers that came were early ones.
TEST(SteadyOpen, ARequestThatWasCutOffWasSlow) {
  ServerLoadResult load = Arrivals(40, 2, [](int) { return int64_t{2}; });
  for (size_t i = 4; i < load.requests.size(); ++i) {
    RequestRecord& record = load.requests[i];
    record.cut = true;
    record.error = "cut off";
    record.ended_ns = (500 + 5000) * kMillisecond;
    record.token_ns.resize(i % 2);  // some had begun
  }
  const ServingSummary summary = SteadyOpen(load, {.ttft_s = 0.01, .tpot_s = {}, .e2el_s = {}});
  EXPECT_EQ(summary.requests, 0u);
  ASSERT_EQ(summary.e2el_s.size(), 36u);
  for (const double e2el_s : summary.e2el_s) EXPECT_GT(e2el_s, 4.5);
  EXPECT_EQ(std::count(summary.ttft_s.begin(), summary.ttft_s.end(), 0.002), 18);
  EXPECT_EQ(summary.goodput, 0);
}

TEST(SteadyOpen, SoManyRequestsCountAtAnySlope) {
  // Answers that become longer all the while have a slope in every window.
  const auto slower = [](int request) { return int64_t{1 + request * request / 20}; };
  const int least = LeastForSteady(kRate, 90);
  EXPECT_GE(SteadyOpen(Arrivals(least, 3, slower)).requests, 90u);
  EXPECT_EQ(LeastForSteady(kRate, 14), 1);
  EXPECT_GE(SteadyOpen(Arrivals(RequestsForSteadyWindow(kRate), 3, slower)).requests, 14u);
}

}  // namespace
}  // namespace pinion::harness
