#include "harness/profile/replan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pinion::harness {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::Optional;

// Of two sockets with four cores each, whose second hardware threads are 1, 3, 5, ...
std::optional<std::string> Here(const std::string& binding, int ranks,
                                const std::vector<int>& allowed) {
  const Machine machine = *ImagineMachine("pack:2 numa:1 core:4 pu:2");
  EngineOptions options;
  options.threads_bind = binding;
  return ListsHere(options, ranks, machine, *ComputeBudget(machine, {allowed, std::nullopt}));
}

TEST(ListsHere, AreKeptIfTheyCanBeUsed) {
  EXPECT_FALSE(Here("0,2|4,6", 2, {0, 2, 4, 6}));
  for (const char* mode : {"auto", "all", "nobind"}) EXPECT_FALSE(Here(mode, 1, {8, 10}));
}

TEST(ListsHere, AreAsLongAsTheProfiles) {
  EXPECT_THAT(Here("0,2", 1, {8, 9, 10, 11, 12, 13, 14, 15}), Optional(std::string("8,10")));
  EXPECT_THAT(Here("0|2", 2, {8, 9, 10, 11, 12, 13, 14, 15}), Optional(std::string("8|12")));
}

TEST(ListsHere, AreShorterIfThereAreFewerCores) {
  EXPECT_THAT(Here("0,2,4,6", 1, {12, 13, 14, 15}), Optional(std::string("12,14")));
}

TEST(ListsHere, KeepRanksOnNodesOfTheirOwn) {
  EXPECT_THAT(Here("0,2|4,6", 2, {2, 3, 4, 5, 8, 9, 10, 11}), Optional(std::string("2,4|8,10")));
}

TEST(ListsHere, AreNotMadeForMoreRanksThanCpus) { EXPECT_FALSE(Here("0|2|4", 3, {12, 13})); }

Plan PlanOf(std::vector<std::vector<int>> ranks, std::vector<int> frontend) {
  Plan plan;
  for (auto& cpus : ranks) plan.ranks.push_back({0, std::move(cpus), {}, 1});
  plan.frontend_cpus = std::move(frontend);
  return plan;
}

TEST(DifferenceOfPlans, IsSaidWithThreadsAndCpus) {
  const Json measured =
      *Json::Parse(R"({"ranks":[{"cpus":[0,2]},{"cpus":[4,6]}],"frontend_cpus":[8]})");
  EXPECT_FALSE(DifferenceOfPlans(&measured, PlanOf({{0, 2}, {4, 6}}, {8})));
  EXPECT_FALSE(DifferenceOfPlans(nullptr, PlanOf({{0}}, {})));
  const auto differs = DifferenceOfPlans(&measured, PlanOf({{1}, {3, 5}}, {}));
  ASSERT_TRUE(differs);
  EXPECT_THAT(*differs, HasSubstr("1 + 2 threads on CPUs 1|3,5; measured: 2 + 2 threads on CPUs "
                                  "0,2|4,6, front end on 8"));
}

// Two ranks that were apart may get one node: they share its memory's bandwidth.
TEST(DifferenceOfPlans, NamesNodesThatAreOthers) {
  const Json measured =
      *Json::Parse(R"({"ranks":[{"cpus":[0],"nodes":[0]},{"cpus":[4],"nodes":[1]}]})");
  Plan plan = PlanOf({{2}, {3}}, {});
  plan.ranks[0].nodes = plan.ranks[1].nodes = {0};
  EXPECT_THAT(
      DifferenceOfPlans(&measured, plan),
      Optional(HasSubstr("on CPUs 2|3 of NUMA nodes 0|0; measured: 1 + 1 threads on CPUs 0|4 "
                         "of NUMA nodes 0|1")));
  plan.ranks[1].nodes = {1};
  EXPECT_THAT(DifferenceOfPlans(&measured, plan), Optional(Not(HasSubstr("nodes"))));
}

}  // namespace
}  // namespace pinion::harness
