#include "harness/stats/serving.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pinion::harness {
namespace {

constexpr int64_t kMs = 1'000'000;

// Sent at 100 ms, tokens at 200, 230 and 300 ms.
const RequestTrace kThreeTokens = {100 * kMs, {200 * kMs, 230 * kMs, 300 * kMs}};
const RequestTrace kOneToken = {0, {50 * kMs}};

TEST(Serving, FormulasOfOneRequest) {
  EXPECT_DOUBLE_EQ(TtftSeconds(kThreeTokens), 0.1);
  EXPECT_DOUBLE_EQ(E2elSeconds(kThreeTokens), 0.2);
  EXPECT_DOUBLE_EQ(*TpotSeconds(kThreeTokens), 0.05);
  EXPECT_FALSE(TpotSeconds(kOneToken));
}

TEST(Serving, WindowRunsFromFirstSendToLastCompletion) {
  const std::vector<RequestTrace> traces = {kThreeTokens, kOneToken};
  const ServingSummary summary = Summarise(traces);
  EXPECT_DOUBLE_EQ(summary.window_s, 0.3);
  EXPECT_EQ(summary.output_tokens, 4u);
  EXPECT_DOUBLE_EQ(summary.output_tokens_per_s, 4 / 0.3);
  EXPECT_THAT(summary.itl_s, testing::Pointwise(testing::DoubleEq(), {0.03, 0.07}));
  EXPECT_EQ(summary.tpot_s.size(), 1u);  // a single token has no time per further token
}

TEST(Serving, GoodputCountsOnlyRequestsWithinEveryLimit) {
  const std::vector<RequestTrace> traces = {kThreeTokens, kOneToken};
  EXPECT_DOUBLE_EQ(Summarise(traces).goodput, 2 / 0.3);
  EXPECT_DOUBLE_EQ(Summarise(traces, {.ttft_s = 0.06, .tpot_s = {}, .e2el_s = {}}).goodput,
                   1 / 0.3);
  EXPECT_DOUBLE_EQ(Summarise(traces, {.ttft_s = 0.2, .tpot_s = 0.04, .e2el_s = {}}).goodput,
                   1 / 0.3);
  EXPECT_DOUBLE_EQ(Summarise(traces, {.ttft_s = {}, .tpot_s = {}, .e2el_s = 0.01}).goodput, 0);
}

TEST(Serving, ALimitThatIsJustReachedIsMet) {
  const double ttft_s = TtftSeconds(kThreeTokens), tpot_s = *TpotSeconds(kThreeTokens);
  const double e2el_s = E2elSeconds(kThreeTokens);
  EXPECT_TRUE(Meets(kThreeTokens, {.ttft_s = ttft_s, .tpot_s = tpot_s, .e2el_s = e2el_s}));
  const double below = 1 - 1e-9;
  EXPECT_FALSE(Meets(kThreeTokens, {.ttft_s = below * ttft_s, .tpot_s = {}, .e2el_s = {}}));
  EXPECT_FALSE(Meets(kThreeTokens, {.ttft_s = {}, .tpot_s = below * tpot_s, .e2el_s = {}}));
  EXPECT_FALSE(Meets(kThreeTokens, {.ttft_s = {}, .tpot_s = {}, .e2el_s = below * e2el_s}));
}

TEST(Serving, SummaryWithoutRequestsIsZero) { EXPECT_EQ(Summarise({}).output_tokens_per_s, 0); }

}  // namespace
}  // namespace pinion::harness
