// The part of a trial that looks for the load that meets its SLO.

#include "harness/trial/slo_phase.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "engine/base/strings.h"
#include "fake_target.h"

namespace pinion::harness {
namespace {

using testing::Contains;
using testing::HasSubstr;

// Levels by load: good of ten.
std::pair<std::optional<double>, std::string> Told(bool by_rate,
                                                   const std::map<double, size_t>& good) {
  SloTarget target;
  target.by_rate = by_rate;
  SloLevels levels;
  for (const auto& [load, of_ten] : good) levels[load] = {of_ten, 10};
  TrialInfo info;
  std::vector<MetricValue> samples;
  DescribeSearch(target, levels, info, samples);
  return {samples.empty() ? std::nullopt : std::optional(samples.front().value),
          Join(info.cut, ", ")};
}

// Requests of 0.1 s, one after the other: 10 a second are served, and at 11.3 a second the ninth
// waits longer than 0.1 s. The search, from half of 10 rounded down to a power of the square root
// of 2, goes by such steps, and then by their roots.
TEST(Trial, LooksForTheRateThatMeetsTheSlo) {
  FakeTarget target;
  target.serves_s = 0.1;
  TrialRequest request = SmallRequest();
  request.limit_s = 100;
  request.workload.slo = AnswerWithin(0.2);
  const auto result = Measured(target, request);
  ASSERT_TRUE(result) << result.error().message;
  const double found = Find(*result, "slo_load", 0)->value;
  EXPECT_GT(found, 9.5);
  EXPECT_LT(found, 11.32);
  EXPECT_EQ(result->info.slo->unit, "requests/s");
  EXPECT_EQ(result->info.slo->levels.begin()->first, 4);
  EXPECT_EQ(result->info.slo->levels.begin()->second.total, 20u) << "for attain 0.9";
}

// Twenty requests at once would all be served within the limit of 2 s, and yet no more than 10 a
// second are.
TEST(Trial, ABurstThatIsSoonServedIsNotALoad) {
  FakeTarget target;
  target.serves_s = 0.1;
  TrialRequest request = SmallRequest();
  request.limit_s = 1000;
  request.workload.slo = AnswerWithin(2);
  const auto result = Measured(target, request);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_GT(Find(*result, "slo_load", 0)->value, 9.5);
  EXPECT_LT(Find(*result, "slo_load", 0)->value, 12.5);
}

TEST(Trial, LooksForTheClientsThatMeetTheSlo) {
  FakeTarget target;
  target.serves_s = 0.1;
  TrialRequest request = SmallRequest();
  request.limit_s = 100;
  request.workload.slo = AnswerWithin(0.35);  // three clients wait 0.3 s, four 0.4 s
  request.workload.slo->by_rate = false;
  const auto result = Measured(target, request);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_GE(Find(*result, "slo_load", 0)->value, 3);
  EXPECT_LT(Find(*result, "slo_load", 0)->value, 4);
  EXPECT_EQ(result->info.slo->unit, "clients");
}

TEST(Trial, ALoadThatNeverMeetsTheSloIsBelowAllThatWereTried) {
  FakeTarget target;
  TrialRequest request = SmallRequest();
  request.workload.slo = FirstWithin(1e-4);  // a first token takes longer than that
  request.workload.slo->start = 50;
  request.limit_s = 100;  // all runs, each at half the load
  const auto none = Measured(target, request);
  ASSERT_TRUE(none) << none.error().message;
  const auto& [lowest, level] = *none->info.slo->levels.begin();
  EXPECT_EQ(level.good, 0u);
  EXPECT_LT(Find(*none, "slo_load", 0)->value, lowest);
}

// A run that the end of the time cuts off tells nothing of its load.
TEST(Trial, WithoutTimeForARunThereIsNoLoadThatMeetsTheSlo) {
  FakeTarget target;
  target.serves_s = 0.1;
  TrialRequest request = SmallRequest();
  request.workload.slo = AnswerWithin(10);
  request.limit_s = 5;
  const auto result = Measured(target, request);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_FALSE(Find(*result, "slo_load", 0));
  EXPECT_TRUE(result->info.slo->levels.empty());
  EXPECT_THAT(result->info.cut, Contains("search of the SLO's load left out"));
}

// All runs that the time was enough for pass: the load may be ten times as high.
TEST(Trial, ASearchThatIsCutBeforeALoadFailsTellsNoGoodput) {
  FakeTarget target;
  target.serves_s = 0.1;
  TrialRequest request = SmallRequest();
  request.workload.slo = AnswerWithin(0.35);
  request.workload.slo->by_rate = false;
  request.workload.slo->start = 1;
  request.limit_s = 8;
  const auto cut = Measured(target, request);
  ASSERT_TRUE(cut) << cut.error().message;
  const SloLevels& levels = cut->info.slo->levels;
  ASSERT_FALSE(levels.empty());
  EXPECT_EQ(levels.rbegin()->second.good, levels.rbegin()->second.total);
  EXPECT_FALSE(Find(*cut, "slo_load", 0));
  EXPECT_THAT(cut->info.cut, Contains("search of the SLO's load cut"));
}

TEST(DescribeSearch, TellsALoadOnlyBetweenAPassingAndAFailingOneOrAtTheEndOfItsRange) {
  constexpr const char* kCut = "search of the SLO's load cut";
  EXPECT_TRUE(Told(true, {{2, 10}, {4, 0}}).first);
  EXPECT_EQ(Told(true, {{2, 10}, {4, 0}}).second, "");
  EXPECT_EQ(Told(true, {{2, 10}, {4, 10}}), std::pair(std::optional<double>(), std::string(kCut)));
  EXPECT_EQ(Told(true, {{2, 0}, {4, 0}}), std::pair(std::optional<double>(), std::string(kCut)));
  EXPECT_EQ(*Told(true, {{2, 10}, {10'000, 10}}).first, 10'000);
  EXPECT_EQ(*Told(false, {{2, 10}, {4096, 10}}).first, 4096);
  EXPECT_LT(*Told(false, {{1, 0}, {2, 0}}).first, 1) << "fewer clients than one there are not";
  EXPECT_LT(*Told(true, {{0.5, 0}, {16, 0}}).first, 0.5) << "halved as often as a search may";
  EXPECT_FALSE(Told(true, {{0.6, 0}, {16, 0}}).first);
}

TEST(Trial, AServerThatEndsInTheSearchEndsTheTrial) {
  FakeTarget target;
  target.fails_at_rates = true;
  TrialRequest request = SmallRequest();
  request.workload.slo = AnswerWithin(0.1);
  const auto result = Measured(target, request);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("the server ended"));
}

TEST(Trial, LoopsCountRequestsThatMeetTheSlo) {
  FakeTarget target;
  TrialRequest request = SmallRequest();
  request.workload.slo = AnswerWithin(10);
  const auto all = Measured(target, request);
  request.workload.slo = FirstWithin(1e-4);
  const auto none = Measured(target, request);
  ASSERT_TRUE(all && none);
  for (const int clients : {1, 3}) {
    EXPECT_GT(Find(*all, "goodput", clients)->value, 0);
    EXPECT_EQ(Find(*none, "goodput", clients)->value, 0);
  }
}

TEST(FirstLoad, IsThatOfTheTargetOrHalfOfTheLoadReached) {
  SloTarget target = AnswerWithin(1);
  EXPECT_DOUBLE_EQ(FirstLoad(target, 16), 8);
  EXPECT_DOUBLE_EQ(FirstLoad(target, 15.9), 8 / std::sqrt(2));
  EXPECT_DOUBLE_EQ(FirstLoad(target, 0.5), 0.25);
  target.by_rate = false;
  EXPECT_EQ(FirstLoad(target, 16), 2);
  target.start = 7;
  EXPECT_EQ(FirstLoad(target, 16), 7);
}

}  // namespace
}  // namespace pinion::harness
