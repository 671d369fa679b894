#include "harness/bench/scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pinion::harness {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Plan PlanOf(std::vector<std::vector<int>> cpus) {
  Plan plan;
  for (std::vector<int>& of_rank : cpus) {
    RankPlan rank;
    rank.rank = static_cast<int>(plan.ranks.size());
    rank.threads = static_cast<int>(of_rank.size());
    rank.cpus = std::move(of_rank);
    plan.ranks.push_back(rank);
  }
  return plan;
}

std::vector<std::string> ListsOf(const std::vector<ScalingRun>& runs) {
  std::vector<std::string> lists;
  for (const ScalingRun& run : runs) lists.push_back(run.threads_bind);
  return lists;
}

TEST(ScalingRuns, DoubleTheThreadsUpToAllOfThemInThePlansOrder) {
  const auto runs = ScalingRuns(PlanOf({{4, 0, 1, 2, 3, 5}}), {});
  ASSERT_TRUE(runs);
  EXPECT_THAT(ListsOf(*runs), ElementsAre("4", "4,0", "4,0,1,2", "4,0,1,2,3,5"));
  for (const ScalingRun& run : *runs) EXPECT_EQ(run.ranks, 1);
  EXPECT_EQ(runs->back().threads, 6);
}

TEST(ScalingRuns, EndWithThePlansOfMoreRanks) {
  const auto runs = ScalingRuns(PlanOf({{0}}), {PlanOf({{0, 1}, {2, 3}}), PlanOf({{0}, {1}})});
  ASSERT_TRUE(runs);
  EXPECT_THAT(ListsOf(*runs), ElementsAre("0", "0,1|2,3", "0|1"));
  EXPECT_EQ((*runs)[1].ranks, 2);
  EXPECT_EQ((*runs)[1].threads, 4);
}

TEST(ScalingRuns, RefuseAPlanThatPinsNoThread) {
  Plan plan = PlanOf({{}});
  plan.ranks[0].threads = 2;
  const auto runs = ScalingRuns(plan, {});
  ASSERT_FALSE(runs);
  EXPECT_EQ(runs.error().code, ErrorCode::kUsage);
  EXPECT_THAT(runs.error().message, HasSubstr("nobind"));
}

constexpr const char* kBench = R"({
  "prefill_tokens_per_s": {"median": 300.0}, "decode_tokens_per_s": {"median": 40.0}, "batch": 4,
  "limits": {"metrics": {"prefill_tokens_per_s": {"fraction": {"median": 0.75}}}},
  "wait_shares": [0.25, 0.01]})";

TEST(ReadScalingRow, StepsAreTokensDividedByTheSequencesOfTheBatch) {
  const auto row = ReadScalingRow({2, 4, "0,1|2,3"}, *Json::Parse(kBench));
  ASSERT_TRUE(row) << row.error().message;
  EXPECT_EQ(row->prefill_tokens_per_s, 300);
  EXPECT_EQ(row->decode_steps_per_s, 10);
  EXPECT_EQ(row->prefill_of_limit, 0.75);
  EXPECT_EQ(row->decode_of_limit, std::nullopt) << "its limit is not known";
  EXPECT_THAT(row->wait_shares, ElementsAre(0.25, 0.01));
}

TEST(ReadScalingRow, TextsThatAreEmbeddedHaveNoDecodeSteps) {
  constexpr const char* kPrefill =
      R"({"prefill_tokens_per_s": {"median": 300.0}, "batch": 4, "wait_shares": [0]})";
  const auto row = ReadScalingRow({1, 1, "0"}, *Json::Parse(kPrefill));
  ASSERT_TRUE(row) << row.error().message;
  EXPECT_EQ(row->prefill_tokens_per_s, 300);
  EXPECT_EQ(row->decode_steps_per_s, std::nullopt);
  EXPECT_THAT(Render({*row}), HasSubstr("1.00         -           -       -         -"));
}

TEST(ReadScalingRow, RefusesAnythingButABench) {
  EXPECT_FALSE(ReadScalingRow({}, *Json::Parse(R"({"batch": 1})")));
  EXPECT_FALSE(ReadScalingRow({}, Json()));
}

TEST(RenderScaling, RatiosAreToTheFirstRowAndFailuresAreRows) {
  ScalingRow one{.run = {1, 1, "0"}}, two{.run = {1, 2, "0,1"}};
  one.prefill_tokens_per_s = 100;
  one.decode_steps_per_s = 10;
  two.prefill_tokens_per_s = 190;
  two.decode_steps_per_s = 15;
  two.wait_shares = {0.125};
  const ScalingRow failed{.run = {2, 2, "0|1"}, .error = "7 heads do not divide"};
  const std::string text = Render({one, two, failed});
  EXPECT_THAT(text, HasSubstr("1.90"));
  EXPECT_THAT(text, HasSubstr("1.50"));
  EXPECT_THAT(text, HasSubstr("12.5 %"));
  EXPECT_THAT(text, HasSubstr("7 heads do not divide"));
  const Json json = ToJson(std::vector{one, two, failed});
  ASSERT_EQ(json.array().size(), 3u);
  EXPECT_EQ(json.array()[1].Find("decode_steps_per_s")->number(), 15);
  EXPECT_TRUE(json.array()[1].Find("decode_of_limit")->is_null());
  EXPECT_EQ(json.array()[2].Find("error")->string(), "7 heads do not divide");
}

}  // namespace
}  // namespace pinion::harness
