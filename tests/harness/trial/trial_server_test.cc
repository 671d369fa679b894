#include "harness/trial/trial_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace pinion::harness {
namespace {

TEST(ShownCommand, HasThePreloadedLibrariesOfTheTrialsProcess) {
  TrialRequest request;
  request.configuration.options.model = "org/name";
  request.engine.kind = EngineChoice::Kind::kVllm;
  const auto plan = PlanServer(request);
  ASSERT_TRUE(plan) << plan.error().message;
  setenv("LD_PRELOAD", "/lib/libtcmalloc_minimal.so.4", 1);
  const auto shown = ShownCommand(*plan, request);
  unsetenv("LD_PRELOAD");
  ASSERT_TRUE(shown) << shown.error().message;
  EXPECT_THAT(*shown, testing::StartsWith("LD_PRELOAD=/lib/libtcmalloc_minimal.so.4 "));
}

TEST(SpareCpus, AreThoseOfNeitherRanksNorFrontEnds) {
  Budget budget;
  budget.cpus = {0, 1, 2, 3, 4};
  pinion::Plan plan;
  plan.ranks.resize(2);
  plan.ranks[0].cpus = {0};
  plan.ranks[1].cpus = {2};
  plan.frontend_cpus = {4};
  EXPECT_THAT(*SpareCpus(budget, plan), testing::ElementsAre(1, 3));
  plan.frontend_cpus = {1, 3, 4};
  EXPECT_FALSE(SpareCpus(budget, plan)) << "none is left: it shares";
  plan.frontend_cpus = {4};
  plan.ranks[1].cpus = {};  // nobind
  EXPECT_FALSE(SpareCpus(budget, plan));
}

}  // namespace
}  // namespace pinion::harness
