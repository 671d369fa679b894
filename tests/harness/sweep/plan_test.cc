#include "harness/sweep/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/checkpoint/model.h"

namespace pinion::harness {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr char kModel[] = "preset:qwen2.5-0.5b";

// The plan of a sweep on a machine whose nodes read 100 GB/s each; 0: without ceilings.
Json PlanOn(const char* machine, const char* definition_text, double node_bytes_per_s = 1e11) {
  Host host;
  host.machine = *ImagineMachine(machine);
  host.budget = *ComputeBudget(host.machine);
  host.isas = {"avx2", "avx512"};
  Definition definition;
  EXPECT_TRUE(FromJson(*Json::Parse(definition_text), definition));
  EngineOptions base;
  base.model = kModel;
  const auto points = Expand(definition, base, host, FindModel(kModel)->spec);
  EXPECT_TRUE(points) << points.error().message;
  StatedCeilings stated;
  stated.node_bytes_per_s = node_bytes_per_s;
  const auto ceilings = MachineCeilings::For(host.machine, Json(), stated, host.isas);
  return *MakeSweepPlan(definition, base, host, *points,
                        node_bytes_per_s > 0 ? &*ceilings : nullptr);
}

std::vector<std::string> NamesIn(const Json& plan) {
  std::vector<std::string> names;
  for (const Json& one : plan.Find("candidates")->array())
    names.push_back(one.Find("name")->string());
  return names;
}

constexpr char kTwoNodes[] = "pack:2 numa:1(memory=64GB) core:16 pu:1";
constexpr char kDefinition[] = R"({"axes":{"isa":["auto","avx2"]},"candidates":[
  {"threads_bind":"0-15","isa":"avx2"},{"tensor_parallel":99},{"reserved_cpus":2}]})";

TEST(SweepPlan, ListsAxesAndCandidatesWithTheMostPromisingFirst) {
  const Json plan = PlanOn(kTwoNodes, kDefinition);
  EXPECT_EQ(*plan.Find("axes"),
            *Json::Parse(R"({"threads_bind":["auto","0-15"],"reserved_cpus":[null,2],
                             "tensor_parallel":[1,99],"isa":["auto","avx2"]})"));
  EXPECT_THAT(NamesIn(plan), ElementsAre("default", "reserved_cpus=2", "isa=avx2",
                                         "threads_bind=0-15 isa=avx2", "tensor_parallel=99"));
  const Json::Array& candidates = plan.Find("candidates")->array();
  EXPECT_EQ(*candidates[1].Find("settings"), *Json::Parse(R"({"reserved_cpus":2})"));
  double last = candidates[0].Find("prediction")->Find("output_tokens_per_s")->number();
  for (size_t i = 1; i < 4; ++i) {
    ASSERT_FALSE(candidates[i].Find("excluded"));
    const double rate = candidates[i].Find("prediction")->Find("output_tokens_per_s")->number();
    EXPECT_LE(rate, last);
    last = rate;
  }
  EXPECT_THAT(candidates[4].Find("excluded")->string(), HasSubstr("99"));
  EXPECT_FALSE(candidates[4].Find("prediction"));
}

// Half the nodes have half the bandwidth, and a faster memory is faster.
TEST(SweepPlan, PredictionsFollowTheMachine) {
  const auto per_token = [](const Json& plan, size_t place) {
    return plan.Find("candidates")->array()[place].Find("prediction")->Find("tpot_s")->number();
  };
  const char* one_node = R"({"candidates":[{"threads_bind":"0-15"}]})";
  const Json two = PlanOn(kTwoNodes, one_node),
             four = PlanOn("pack:4 numa:1(memory=64GB) core:16 pu:1", one_node);
  EXPECT_NEAR(per_token(two, 0) / per_token(four, 0), 2, 1e-6);
  EXPECT_NEAR(per_token(two, 1) / per_token(two, 0), 2, 1e-6);
  EXPECT_NEAR(per_token(two, 0) / per_token(PlanOn(kTwoNodes, one_node, 1.5e11), 0), 1.5, 1e-6);
}

TEST(SweepPlan, WithoutCeilingsPredictsNothingAndSaysHow) {
  const Json plan = PlanOn(kTwoNodes, kDefinition, 0);
  EXPECT_THAT(NamesIn(plan), ElementsAre("default", "isa=avx2", "threads_bind=0-15 isa=avx2",
                                         "reserved_cpus=2", "tensor_parallel=99"));
  EXPECT_TRUE(plan.Find("ceilings")->is_null());
  for (const Json& one : plan.Find("candidates")->array()) EXPECT_FALSE(one.Find("prediction"));
  EXPECT_THAT(RenderSweepPlan(plan), AllOf(HasSubstr("nothing was run"),
                                           HasSubstr("No predictions without the machine's limits"),
                                           HasSubstr("excluded: tensor_parallel=99: ")));
  EXPECT_THAT(RenderSweepPlan(PlanOn(kTwoNodes, kDefinition)),
              AllOf(HasSubstr("upper limits (stated): 200 GB/s from memory"),
                    Not(HasSubstr("No predictions"))));
}

// Not every strategy measures every configuration.
TEST(SweepPlan, NamesTheMeasurementsOfTheStrategy) {
  const auto told = [](const char* definition) {
    return RenderSweepPlan(PlanOn(kTwoNodes, definition, 0));
  };
  EXPECT_THAT(told(R"({"axes":{"isa":["auto","avx2"]}})"),
              HasSubstr("Every round measures all of these once"));
  for (const char* searching : {R"({"axes":{"isa":["auto","avx2"]},"strategy":"tpe"})",
                                R"({"axes":{"isa":["auto","avx2"]},"strategy":"coordinate"})"})
    EXPECT_THAT(told(searching), HasSubstr("The search measures some of these"));
  EXPECT_THAT(told(R"({"axes":{"isa":["auto","avx2"]},"strategy":"random"})"),
              HasSubstr("A random choice of these"));
}

}  // namespace
}  // namespace pinion::harness
