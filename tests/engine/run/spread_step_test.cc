#include "engine/run/spread_step.h"

#include <gtest/gtest.h>

namespace pinion {
namespace {

TEST(SpreadStep, IsPredictedFromTheTimeOutsideOfCallsAndTheLink) {
  StepWork work;
  work.steps = 4;
  work.seconds = 2;
  work.exchanged = {.calls = 44, .delays = 40, .bytes = 8000, .seconds = 1.2};
  const auto step = SpreadStepOf(work, LinkCost{.call_s = 0.01, .bytes_per_s = 20'000});
  ASSERT_TRUE(step);
  EXPECT_DOUBLE_EQ(step->measured_s, 0.5);
  EXPECT_DOUBLE_EQ(step->compute_s, 0.2);
  EXPECT_DOUBLE_EQ(step->link_s, 10 * 0.01 + 2000 / 20'000.0);
  EXPECT_DOUBLE_EQ(step->predicted_s(), 0.4) << "0.1 s a step were waiting for another process";
  EXPECT_EQ(step->calls, 11);
  EXPECT_EQ(step->delays, 10);
  EXPECT_EQ(step->bytes, 2000);
  EXPECT_EQ(ToJson(step).Find("predicted_s")->number(), step->predicted_s());
}

TEST(SpreadStep, IsNoneWithoutStepsOrOtherProcesses) {
  StepWork work;
  EXPECT_FALSE(SpreadStepOf(work, LinkCost{.call_s = 1}));
  work.steps = 1;
  EXPECT_FALSE(SpreadStepOf(work, std::nullopt));
  EXPECT_TRUE(ToJson(std::optional<SpreadStep>()).is_null());
}

}  // namespace
}  // namespace pinion
