// Two servers whose loads take turns: the order of the waves, what fails alone, what is joined.

#include "harness/trial/turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "fake_target.h"

namespace pinion::harness {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Writes down which side was sent what.
class WatchedTarget final : public LoadTarget {
 public:
  WatchedTarget(char name, FakeTarget& target, std::vector<std::pair<char, LoadPlan>>& sent)
      : name_(name), target_(target), sent_(sent) {}
  Result<PhaseResult> Send(const LoadPlan& phase) override {
    sent_.emplace_back(name_, phase);
    return target_.Send(phase);
  }
  std::vector<pid_t> processes() const override { return {}; }
  int replicas() const override { return 1; }
  int threads() const override { return 1; }
  void Settle(double limit_s) override {
    settled = sent_.size();
    target_.Settle(limit_s);
  }

  std::optional<size_t> settled;  // after so many loads of both sides

 private:
  const char name_;
  FakeTarget& target_;
  std::vector<std::pair<char, LoadPlan>>& sent_;
};

class Turns : public testing::Test {
 protected:
  Turns() {
    request_.sides = {SmallRequest(), SmallRequest()};
    for (TrialRequest& side : request_.sides) side.workload.concurrency.clear();  // a batch alone
    request_.waves = 3;
  }

  PairResult Run() {
    return MeasureInTurns({&seen_a_, &seen_b_}, request_, clock_.NowNs(), clock_);
  }
  // The sides of all loads but the warm-ups, "ABABAB".
  std::string Order() const {
    std::string order;
    for (const auto& [name, phase] : sent_)
      if (phase.shape.name != kWarmUpShape) order += name;
    return order;
  }

  FakeClock clock_;
  FakeTarget a_{clock_}, b_{clock_};
  std::vector<std::pair<char, LoadPlan>> sent_;
  WatchedTarget seen_a_{'A', a_, sent_}, seen_b_{'B', b_, sent_};
  PairRequest request_;
};

TEST_F(Turns, WavesAlternateAndBothSidesOfOneSendTheSamePrompts) {
  b_.step_s = 2 * a_.step_s;
  const PairResult result = Run();
  ASSERT_TRUE(result[0] && result[1]);
  EXPECT_EQ(Order(), "ABABAB");
  std::vector<uint64_t> a, b;
  bool loaded = false;
  for (const auto& [name, phase] : sent_) {
    const bool warms_up = phase.shape.name == kWarmUpShape;
    EXPECT_FALSE(warms_up && loaded) << "both are warm before the first wave, and stay so";
    loaded |= !warms_up;
    if (!warms_up) (name == 'A' ? a : b).push_back(phase.seed);
  }
  EXPECT_EQ(a, b);
  EXPECT_EQ(std::set<uint64_t>(a.begin(), a.end()).size(), 3u) << "a prefix cache would help";
  ASSERT_EQ(result[0]->info.waves.size(), 3u);
  EXPECT_EQ(result[1]->info.waves.size(), 3u);
  EXPECT_GT(Find(*result[0], "output_tokens_per_s", 0)->value,
            Find(*result[1], "output_tokens_per_s", 0)->value);
}

// A server's work after its start would slow the other's first waves.
TEST_F(Turns, BothHaveSettledAfterTheWarmUpsAndBeforeTheFirstWave) {
  ASSERT_TRUE(Run()[0]);
  const auto first = std::find_if(sent_.begin(), sent_.end(), [](const auto& one) {
    return one.second.shape.name != kWarmUpShape;
  });
  const auto warm_ups = static_cast<size_t>(first - sent_.begin());
  EXPECT_EQ(seen_a_.settled, warm_ups);
  EXPECT_EQ(seen_b_.settled, warm_ups);
  EXPECT_EQ(b_.settled_s, 10);
}

TEST_F(Turns, ASideThatFailsLeavesTheOtherItsWaves) {
  a_.error = "HTTP 400: no";
  const PairResult result = Run();
  ASSERT_FALSE(result[0]);
  EXPECT_THAT(result[0].error().message, HasSubstr("HTTP 400: no"));
  ASSERT_TRUE(result[1]);
  EXPECT_EQ(result[1]->info.waves.size(), 3u);
  EXPECT_EQ(Order(), "ABBB") << "it is not asked again";
}

TEST_F(Turns, ASideThatDidNotStartLeavesTheOtherItsWaves) {
  const PairResult result = MeasureInTurns({nullptr, &seen_b_}, request_, clock_.NowNs(), clock_);
  EXPECT_FALSE(result[0]);
  ASSERT_TRUE(result[1]);
  EXPECT_EQ(Order(), "BBB");
}

TEST_F(Turns, ASideThatAnswersNothingInItsWaveIsTooSlow) {
  b_.never_answers = true;
  const PairResult result = Run();
  ASSERT_TRUE(result[0] && result[1]);
  EXPECT_EQ(result[0]->too_slow, "");
  EXPECT_THAT(result[1]->too_slow, HasSubstr("no request was answered"));
}

TEST_F(Turns, WavesEndBeforeTheDeadline) {
  for (TrialRequest& side : request_.sides) {
    side.workload.load.shape.output = Lengths::Fixed(4000);  // an answer takes 4 s
    side.limit_s = 10;
    side.deadline_s = 20;  // for the six waves of both sides
  }
  const int64_t start_ns = clock_.NowNs();
  (void)Run();
  EXPECT_LE(static_cast<double>(clock_.NowNs() - start_ns) * 1e-9, 20);
  EXPECT_GE(static_cast<double>(clock_.NowNs() - start_ns) * 1e-9, 10) << "nothing was cut";
}

TEST(Joined, HasMeansAllRequestsAndEachSuspicionOnce) {
  TrialResult first, second;
  first.samples = {{"output_tokens_per_s", 0, 90}, {"ttft_s", 4, 1}};
  second.samples = {{"output_tokens_per_s", 0, 110}};
  first.suspect = {"steal"};
  second.suspect = {"steal", "throttled"};
  first.requests.resize(2);
  second.requests.resize(3);
  second.info.cut = {kBatchCut};
  first.info.batch_over_s = 0.5;
  second.info.batch_over_s = 1.5;
  first.info.quantiles = {{"ttft_s", 4, 10, {1, 2, 3}}};
  second.info.quantiles = {{"ttft_s", 4, 20, {3, 4, 5}}, {"itl_s", 4, 7, {1, 1, 1}}};
  first.info.slo = {"clients", {{2, {9, 10}}}};
  second.info.slo = {"clients", {{2, {10, 10}}, {4, {3, 10}}}};
  const TrialResult joined = Joined({first, second});
  EXPECT_EQ(Find(joined, "output_tokens_per_s", 0)->value, 100);
  EXPECT_EQ(Find(joined, "ttft_s", 4)->value, 1) << "of the wave that has it";
  EXPECT_THAT(joined.suspect, ElementsAre("steal", "throttled"));
  EXPECT_EQ(joined.requests.size(), 5u);
  EXPECT_TRUE(joined.info.has_cut_batch());
  EXPECT_EQ(joined.info.batch_over_s, 1.5);
  ASSERT_EQ(joined.info.waves.size(), 2u);
  EXPECT_EQ(joined.info.waves[1][0].value, 110);
  EXPECT_THAT(joined.info.wave_requests, ElementsAre(2, 3));
  ASSERT_EQ(joined.info.quantiles.size(), 2u);
  EXPECT_THAT(joined.info.quantiles[0].quantiles, ElementsAre(2, 3, 4));
  EXPECT_EQ(joined.info.quantiles[0].n, 30u);
  EXPECT_THAT(joined.info.quantiles[1].quantiles, ElementsAre(1, 1, 1));
  ASSERT_EQ(joined.info.slo->levels.size(), 2u);
  EXPECT_EQ(joined.info.slo->levels.at(2).good, 19u);
  EXPECT_EQ(joined.info.slo->levels.at(2).total, 20u);
}

TEST(PairRequest, SurvivesTheRoundTripThroughJson) {
  PairRequest request;
  request.sides = {SmallRequest(), SmallRequest()};
  request.sides[1].seed = 9;
  request.waves = 5;
  const auto read = ReadPairRequest(*Json::Parse(ToJson(request).Dump()));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(ToJson(*read).Dump(), ToJson(request).Dump());
  for (const char* broken : {"{}", R"({"sides":1,"waves":1})", R"({"sides":[{}],"waves":1})"})
    EXPECT_FALSE(ReadPairRequest(*Json::Parse(broken))) << broken;
}

TEST(PairResult, SurvivesTheRoundTripThroughJson) {
  TrialResult good;
  good.samples = {{"ttft_s", 1, 0.5}};
  const PairResult result = {good, Fail(ErrorCode::kFailed, "the server ended")};
  const auto read = ReadPairResult(*Json::Parse(ToJson(result).Dump()));
  ASSERT_TRUE(read && (*read)[0]);
  EXPECT_EQ((*read)[0]->samples[0].value, 0.5);
  ASSERT_FALSE((*read)[1]);
  EXPECT_EQ((*read)[1].error().message, "the server ended");
}

}  // namespace
}  // namespace pinion::harness
