#include "engine/host/read_plan.h"

#include <gtest/gtest.h>

namespace pinion {
namespace {

TEST(ReadPlan, TakesThePlansFields) {
  const Machine machine = *ImagineMachine("pack:2 numa:1 core:4 pu:2");
  const Budget budget = *ComputeBudget(machine);
  for (const char* bind : {"auto", "nobind", "0-1|4"}) {
    BindingRequest request;
    request.threads_bind = bind;
    request.ranks = 2;
    request.has_frontend = true;
    const auto plan = MakePlan(machine, budget, request);
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(ToJson(ReadPlan(ToJson(*plan))), ToJson(*plan)) << bind;
  }
}

TEST(ReadPlan, LeavesOutFieldsOfAnotherType) {
  const Plan plan = ReadPlan(*Json::Parse(
      R"({"ranks":[{"cpus":[0,"1",2]},7,{"cpus":"all","threads":3}],"frontend_cpus":4,"reasons":[1,"a"]})"));
  ASSERT_EQ(plan.ranks.size(), 3u);
  EXPECT_EQ(plan.ranks[0].cpus, (std::vector<int>{0, 2}));
  EXPECT_EQ(plan.ranks[0].threads, 2) << "as many as it has CPUs";
  EXPECT_TRUE(plan.ranks[1].cpus.empty());
  EXPECT_EQ(plan.ranks[2].threads, 3);
  EXPECT_TRUE(plan.frontend_cpus.empty());
  EXPECT_EQ(plan.reasons, std::vector<std::string>{"a"});
  for (const char* none : {"null", "[]", "{}", R"({"ranks":{}})"})
    EXPECT_TRUE(ReadPlan(*Json::Parse(none)).ranks.empty()) << none;
}

}  // namespace
}  // namespace pinion
