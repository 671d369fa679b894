#include "engine/host/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/host/imagined.h"

namespace pinion {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The options that a person gave, and the expected result.
struct Wish {
  std::string bind = "auto";
  int ranks = 1;
  std::optional<int> reserved = {};
  bool frontend = false;
  std::optional<int> omp = {};
  bool smt = false;
};

Result<Plan> TryPlan(const Machine& machine, const Budget& budget, const Wish& wish) {
  return MakePlan(machine, budget,
                  {wish.bind, wish.ranks, wish.reserved, wish.frontend, wish.omp, wish.smt});
}

Plan PlanFor(const Machine& machine, const Budget& budget, const Wish& wish = {}) {
  auto plan = TryPlan(machine, budget, wish);
  EXPECT_TRUE(plan) << (plan ? "" : plan.error().message);
  return plan ? *plan : Plan{};
}

std::string ErrorFor(const Machine& machine, const Budget& budget, const Wish& wish) {
  const auto plan = TryPlan(machine, budget, wish);
  EXPECT_FALSE(plan) << Draw(*plan);
  if (plan) return "";
  EXPECT_EQ(plan.error().code, ErrorCode::kUsage);
  return plan.error().message;
}

// hwloc numbers the siblings of a core 0 and 1, the next core's 2 and 3.
const Machine& OneSocketSmt() {
  static const Machine machine = Imagine("pack:1 numa:1 core:8 pu:2");
  return machine;
}
const Machine& TwoSockets() {
  static const Machine machine = Imagine("pack:2 numa:1 core:32 pu:2");
  return machine;
}
const Machine& Snc4() {  // 2 packages of 4 nodes of 14 cores
  static const Machine machine = Imagine("pack:2 numa:4 core:14 pu:1");
  return machine;
}
const Machine& ManyL3() {  // one node, 12 L3 domains of 8 cores
  static const Machine machine = Imagine("pack:1 numa:1 l3:12 core:8 pu:1");
  return machine;
}

TEST(BindingAuto, UsesOneThreadPerPhysicalCore) {
  const Plan plan = PlanFor(OneSocketSmt(), BudgetOf(OneSocketSmt()));
  EXPECT_EQ(Draw(plan), "0-14:2");
  EXPECT_EQ(plan.total_threads(), 8);
  EXPECT_THAT(plan.warnings, IsEmpty());
}

TEST(BindingAuto, SmtAddsTheSiblingsOfEveryCoreButTheFrontEnds) {
  EXPECT_EQ(Draw(PlanFor(OneSocketSmt(), BudgetOf(OneSocketSmt()), {.ranks = 2, .smt = true})),
            "0-7|8-15");
  const Plan served =
      PlanFor(OneSocketSmt(), BudgetOf(OneSocketSmt()), {.frontend = true, .smt = true});
  EXPECT_EQ(Draw(served), "0-13 +14");
  EXPECT_THAT(served.reasons, Contains(HasSubstr("--smt on: every hardware thread")));
}

TEST(BindingAuto, SmtKeepsTheQuotaAndWholeCoresFirst) {
  Budget budget = BudgetOf(OneSocketSmt());
  budget.max_threads = 11;
  budget.cpu_quota = 11;
  EXPECT_EQ(PlanFor(OneSocketSmt(), budget, {.smt = true}).total_threads(), 11);
  EXPECT_THAT(PlanFor(OneSocketSmt(), budget, {.reserved = 1, .smt = true}).total_threads(), 10);
}

TEST(BindingAuto, SmtIsRefusedIfItHasNoEffect) {
  EXPECT_THAT(ErrorFor(Snc4(), BudgetOf(Snc4()), {.smt = true}),
              HasSubstr("each core here has only one"));
  for (const char* bind : {"all", "nobind", "0-3"})
    EXPECT_THAT(ErrorFor(OneSocketSmt(), BudgetOf(OneSocketSmt()), {.bind = bind, .smt = true}),
                HasSubstr("works only under auto"));
}

TEST(BindingAuto, GivesEachRankANode) {
  const Plan plan = PlanFor(TwoSockets(), BudgetOf(TwoSockets()), {.ranks = 2});
  ASSERT_EQ(plan.ranks.size(), 2u);
  EXPECT_THAT(plan.ranks[0].nodes, ElementsAre(0));
  EXPECT_THAT(plan.ranks[1].nodes, ElementsAre(1));
  EXPECT_EQ(plan.ranks[0].threads, 32);
  EXPECT_EQ(plan.ranks[1].cpus.front(), 64);
}

TEST(BindingAuto, SpansNodesWithFewerRanksAndSaysSo) {
  const Plan one = PlanFor(TwoSockets(), BudgetOf(TwoSockets()));
  EXPECT_THAT(one.ranks[0].nodes, ElementsAre(0, 1));
  EXPECT_EQ(one.total_threads(), 64);
  EXPECT_THAT(one.warnings, ElementsAre(AllOf(HasSubstr("spans nodes 0-1"), HasSubstr("-tp 2"))));
  const Plan two = PlanFor(Snc4(), BudgetOf(Snc4()), {.ranks = 2});
  EXPECT_THAT(two.ranks[0].nodes, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(two.ranks[1].nodes, ElementsAre(4, 5, 6, 7));
}

TEST(BindingAuto, GivesEachRankASubNumaCluster) {
  const Plan plan = PlanFor(Snc4(), BudgetOf(Snc4()), {.ranks = 8});
  for (const RankPlan& rank : plan.ranks) {
    EXPECT_THAT(rank.nodes, ElementsAre(rank.rank));
    EXPECT_EQ(rank.threads, 14);
  }
  EXPECT_THAT(plan.warnings, IsEmpty());
}

TEST(BindingAuto, WarnsIfRanksDoNotDivideTheNodes) {
  const Plan plan = PlanFor(Snc4(), BudgetOf(Snc4()), {.ranks = 3});
  EXPECT_EQ(plan.total_threads(), 112) << "every core computes";
  EXPECT_THAT(plan.warnings, Contains(HasSubstr("sets the pace")));
}

TEST(BindingAuto, SplitsANodeAlongL3Domains) {
  const Plan plan = PlanFor(ManyL3(), BudgetOf(ManyL3()), {.ranks = 3});
  EXPECT_EQ(Draw(plan), "0-31|32-63|64-95");
  // 5 ranks: 12 domains give 2, 3, 2, 3, 2 of them, never a part of one.
  for (const RankPlan& rank : PlanFor(ManyL3(), BudgetOf(ManyL3()), {.ranks = 5}).ranks) {
    EXPECT_EQ(rank.cpus.front() % 8, 0);
    EXPECT_EQ(rank.threads % 8, 0);
  }
}

TEST(BindingAuto, SplitsAnL3DomainIfRanksOutnumberThem) {
  EXPECT_EQ(Draw(PlanFor(OneSocketSmt(), BudgetOf(OneSocketSmt()), {.ranks = 4})),
            "0,2|4,6|8,10|12,14");
  const Plan plan = PlanFor(TwoSockets(), BudgetOf(TwoSockets()), {.ranks = 4});
  EXPECT_THAT(plan.ranks[1].nodes, ElementsAre(0));
  EXPECT_THAT(plan.ranks[2].nodes, ElementsAre(1));
  EXPECT_EQ(plan.ranks[3].threads, 16);
}

// Of at most 8 neighbours of one L3 domain, so that the words that threads write stay in it.
TEST(BindingAuto, ThreadsMeetInGroupsOfAnL3Domain) {
  const auto groups = [](const std::string& machine, const BindingRequest& request) {
    const Machine imagined = Imagine(machine);
    return MakePlan(imagined, BudgetOf(imagined), request).value().ranks[0].groups;
  };
  using Groups = std::vector<int>;
  EXPECT_EQ(groups("numa:1 l3:1 core:8 pu:1", {}), Groups{8});
  EXPECT_EQ(groups("numa:1 l3:2 core:3 pu:1", {}), (Groups{3, 3}));
  EXPECT_EQ(groups("numa:1 l3:1 core:28 pu:1", {}), (Groups{7, 7, 7, 7}));
  EXPECT_EQ(groups("numa:2 l3:2 core:12 pu:1", {}), (Groups{6, 6, 6, 6, 6, 6, 6, 6}));
  BindingRequest list;
  list.threads_bind = "0,4,1,5,2";  // back and forth between two caches
  EXPECT_EQ(groups("numa:1 l3:2 core:4 pu:1", list), Groups{5});
  list.threads_bind = "0,1,5";
  EXPECT_EQ(groups("numa:1 l3:2 core:4 pu:1", list), (Groups{2, 1}));
}

TEST(BindingAuto, StaysOnTheNodeThatTheCpusetAllows) {
  const Plan plan = PlanFor(TwoSockets(), BudgetOf(TwoSockets(), "64-127"), {.ranks = 2});
  EXPECT_THAT(plan.ranks[0].nodes, ElementsAre(1));
  EXPECT_EQ(plan.ranks[0].cpus.front(), 64);
  EXPECT_EQ(plan.ranks[1].cpus.back(), 126);
  EXPECT_EQ(plan.total_threads(), 32);
}

TEST(BindingAuto, TakesTheSiblingThatIsAllowed) {
  EXPECT_EQ(Draw(PlanFor(OneSocketSmt(), BudgetOf(OneSocketSmt(), "1,3,4,5"))), "1,3-4");
}

TEST(BindingAuto, LeavesOutNodesWithoutMemoryAndSaysSo) {
  Machine machine = TwoSockets();
  machine.nodes[0].memory_allowed = false;
  const Plan plan = PlanFor(machine, BudgetOf(machine));
  EXPECT_THAT(plan.ranks[0].nodes, ElementsAre(1));
  EXPECT_THAT(plan.warnings,
              ElementsAre(AllOf(HasSubstr("32 cores of node 0"), HasSubstr("idle"))));
  machine.nodes[1].memory_allowed = false;  // a contradiction of the cpuset: compute all the same
  EXPECT_EQ(PlanFor(machine, BudgetOf(machine)).total_threads(), 64);
}

TEST(BindingAuto, WorksOnSparseCpuNumbers) {
  const Machine machine = SparseMachine({{3, 40}, {7, 44}, {9, 46}, {100, 200}}, 2);
  EXPECT_EQ(Draw(PlanFor(machine, BudgetOf(machine))), "3,7,9,100");
  EXPECT_EQ(Draw(PlanFor(machine, BudgetOf(machine), {.ranks = 2})), "3,7|9,100");
  EXPECT_EQ(Draw(PlanFor(machine, BudgetOf(machine, "40,9,200"), {.ranks = 2})), "40|9,200");
}

TEST(BindingAuto, RefusesMoreRanksThanCores) {
  const Budget budget = BudgetOf(OneSocketSmt());
  EXPECT_THAT(ErrorFor(OneSocketSmt(), budget, {.ranks = 9}),
              AllOf(HasSubstr("9 ranks"), HasSubstr("8 cores"),
                    HasSubstr("use 8 ranks or fewer (-tp times -pp)")));
  EXPECT_THAT(ErrorFor(OneSocketSmt(), budget, {.ranks = 17}),
              AllOf(HasSubstr("17 ranks"), HasSubstr("0-15"),
                    HasSubstr("use 16 ranks or fewer (-tp times -pp)"), HasSubstr("nobind")));
  EXPECT_THAT(ErrorFor(OneSocketSmt(), budget, {.ranks = 0}), HasSubstr("1 or more"));
}

// A step ends with its slowest thread.
TEST(BindingKinds, AutoComputesOnLargeCoresAlone) {
  const Machine machine = LargeAndSmallCores(4, 6);
  const Plan plan = PlanFor(machine, BudgetOf(machine));
  EXPECT_EQ(Draw(plan), "0-6:2");
  EXPECT_THAT(plan.reasons, Contains(HasSubstr("cpu 8-13 are efficiency cores")));
  EXPECT_THAT(plan.warnings, IsEmpty());
  EXPECT_EQ(Draw(PlanFor(machine, BudgetOf(machine), {.ranks = 2})), "0,2|4,6");
  EXPECT_EQ(Draw(PlanFor(machine, BudgetOf(machine), {.smt = true})), "0-7");
  EXPECT_EQ(PlanFor(machine, BudgetOf(machine), {.bind = "nobind"}).total_threads(), 4);
}

TEST(BindingKinds, AutoTakesSmallCoresIfTheOthersAreTooFew) {
  const Machine machine = LargeAndSmallCores(4, 6);
  EXPECT_EQ(Draw(PlanFor(machine, BudgetOf(machine, "8-11"))), "8-11");
  const Plan plan = PlanFor(machine, BudgetOf(machine), {.ranks = 5});
  EXPECT_EQ(plan.total_threads(), 10);
  EXPECT_THAT(plan.warnings,
              Contains(AllOf(HasSubstr("cpu 0-6:2 are performance, cpu 8-13 efficiency cores"),
                             HasSubstr("wait for the slowest"))));
}

// It waits for clients most of the time, so that a small core is enough and costs no rank a thread.
TEST(BindingKinds, TheFrontEndHasASmallCore) {
  const Machine machine = LargeAndSmallCores(2, 3);
  EXPECT_EQ(Draw(PlanFor(machine, BudgetOf(machine), {.frontend = true})), "0,2 +4");
  EXPECT_EQ(Draw(PlanFor(machine, BudgetOf(machine), {.reserved = 2})), "0,2 +4-5");
  EXPECT_EQ(Draw(PlanFor(machine, BudgetOf(machine), {.reserved = 4})), "0 +2,4-6");
  EXPECT_THAT(ErrorFor(machine, BudgetOf(machine), {.reserved = 5}),
              HasSubstr("reserve at most 4"));
  EXPECT_EQ(Draw(PlanFor(machine, BudgetOf(machine, {}, 3.0), {.frontend = true})), "0,2 +4");
  EXPECT_EQ(Draw(PlanFor(machine, BudgetOf(machine, {}, 2.0), {.reserved = 1})), "0 +4");
  EXPECT_EQ(Draw(PlanFor(machine, BudgetOf(machine, {}, 1.0), {.frontend = true})), "0");
}

TEST(BindingKinds, CoresThatAreOnlyClockedLowerCompute) {
  Machine machine = LargeAndSmallCores(4, 6);
  machine.kinds = {{"up to 3300 MHz", false}, {"up to 5100 MHz", false}};
  const Plan plan = PlanFor(machine, BudgetOf(machine));
  EXPECT_EQ(plan.total_threads(), 10);
  EXPECT_THAT(plan.reasons, Contains(HasSubstr("cpu 8-13 up to 3300 MHz cores: all compute")));
}

TEST(BindingKinds, ExplicitModesMayMixThemWithAWarning) {
  const Machine machine = LargeAndSmallCores(4, 6);
  for (const char* bind : {"all", "0,2,4,6,8-13"})
    EXPECT_THAT(PlanFor(machine, BudgetOf(machine), {.bind = bind}).warnings,
                Contains(HasSubstr("wait for the slowest")))
        << bind;
  for (const char* bind : {"0,2,4,6", "8-13"})
    EXPECT_THAT(PlanFor(machine, BudgetOf(machine), {.bind = bind}).warnings, IsEmpty()) << bind;
}

TEST(BindingReserve, SpreadsOverTheRanks) {
  const Plan plan = PlanFor(TwoSockets(), BudgetOf(TwoSockets()), {.ranks = 2, .reserved = 2});
  EXPECT_THAT(plan.frontend_cpus, ElementsAre(62, 126));
  EXPECT_EQ(plan.ranks[0].threads, 31);
  EXPECT_EQ(plan.ranks[1].threads, 31);
}

TEST(BindingReserve, DefaultsToOneForAFrontEndThatLeavesFourCoresARank) {
  const Machine four = Imagine("pack:1 numa:1 core:4 pu:1"),
                five = Imagine("pack:1 numa:1 core:5 pu:1");
  EXPECT_EQ(Draw(PlanFor(four, BudgetOf(four), {.frontend = true})), "0-3");
  EXPECT_EQ(Draw(PlanFor(five, BudgetOf(five), {.frontend = true})), "0-3 +4");
  EXPECT_EQ(Draw(PlanFor(five, BudgetOf(five))), "0-4") << "only for serve and launch";
  EXPECT_EQ(Draw(PlanFor(five, BudgetOf(five), {.reserved = 0, .frontend = true})), "0-4");
  EXPECT_EQ(Draw(PlanFor(four, BudgetOf(four), {.reserved = 1, .frontend = true})), "0-2 +3");
}

TEST(BindingReserve, LeavesEveryRankACore) {
  EXPECT_EQ(Draw(PlanFor(OneSocketSmt(), BudgetOf(OneSocketSmt()), {.ranks = 2, .reserved = 6})),
            "0|8 +2-6:2,10-14:2");
  EXPECT_THAT(ErrorFor(OneSocketSmt(), BudgetOf(OneSocketSmt()), {.ranks = 2, .reserved = 7}),
              AllOf(HasSubstr("reserved-cpus 7"), HasSubstr("8 cores"), HasSubstr("at most 6")));
  EXPECT_THAT(ErrorFor(OneSocketSmt(), BudgetOf(OneSocketSmt()), {.reserved = -1}),
              HasSubstr("-1"));
}

TEST(BindingReserve, WorksOnlyUnderAuto) {
  const Budget budget = BudgetOf(OneSocketSmt());
  for (const char* bind : {"all", "nobind"}) {
    const Plan plan = PlanFor(OneSocketSmt(), budget, {.bind = bind, .reserved = 2});
    EXPECT_THAT(plan.frontend_cpus, IsEmpty());
    EXPECT_THAT(plan.warnings, ElementsAre(HasSubstr("reserved-cpus 2 has no effect")));
  }
  EXPECT_THAT(ErrorFor(OneSocketSmt(), budget, {.bind = "0-3", .reserved = 1}),
              AllOf(HasSubstr("reserved-cpus 1"), HasSubstr("leave CPUs out of the list")));
  EXPECT_EQ(Draw(PlanFor(OneSocketSmt(), budget, {.bind = "0,2", .reserved = 0})), "0,2");
}

TEST(BindingQuota, BoundsTheThreadsOfAllRanks) {
  const Budget budget = BudgetOf(TwoSockets(), {}, 3.5);
  EXPECT_EQ(budget.max_threads, 3);
  const Plan plan = PlanFor(TwoSockets(), budget);
  EXPECT_EQ(Draw(plan), "0-4:2");
  EXPECT_THAT(plan.ranks[0].nodes, ElementsAre(0)) << "no reason to span nodes";
  EXPECT_THAT(plan.warnings, ElementsAre(AllOf(HasSubstr("3.5"), HasSubstr("61 cores stay idle"))));
  EXPECT_EQ(Draw(PlanFor(TwoSockets(), budget, {.ranks = 2})), "0,2|64");
  EXPECT_EQ(PlanFor(TwoSockets(), budget, {.bind = "all"}).total_threads(), 3);
  EXPECT_EQ(PlanFor(TwoSockets(), budget, {.bind = "nobind"}).total_threads(), 3);
  EXPECT_EQ(PlanFor(TwoSockets(), budget, {.bind = "nobind", .omp = 8}).total_threads(), 3);
  EXPECT_EQ(Draw(PlanFor(TwoSockets(), budget, {.bind = "8-15"})), "8-10");
  EXPECT_EQ(Draw(PlanFor(TwoSockets(), BudgetOf(TwoSockets(), {}, 0.4))), "0");
}

TEST(BindingQuota, CountsTheFrontEndsCores) {
  const Budget budget = BudgetOf(TwoSockets(), {}, 6);
  EXPECT_EQ(Draw(PlanFor(TwoSockets(), budget, {.frontend = true})), "0-8:2 +10");
  EXPECT_EQ(Draw(PlanFor(TwoSockets(), budget, {.ranks = 2, .reserved = 2})), "0,2|64,66 +4,68");
  EXPECT_EQ(Draw(PlanFor(TwoSockets(), BudgetOf(TwoSockets(), {}, 4), {.frontend = true})),
            "0-6:2");
  EXPECT_THAT(ErrorFor(TwoSockets(), budget, {.reserved = 6}),
              AllOf(HasSubstr("quota of 6"), HasSubstr("at most 5")));
}

TEST(BindingQuota, RefusesMoreRanksThanItAllows) {
  const Budget budget = BudgetOf(TwoSockets(), {}, 1.5);
  for (const char* bind : {"auto", "all", "0|64"})
    EXPECT_THAT(ErrorFor(TwoSockets(), budget, {.bind = bind, .ranks = 2}),
                AllOf(HasSubstr("quota of 1.5"), HasSubstr("nobind")));
}

TEST(BindingAll, DividesEveryLogicalCpuEvenly) {
  EXPECT_EQ(Draw(PlanFor(OneSocketSmt(), BudgetOf(OneSocketSmt()), {.bind = "all"})),
            "0-14:2,1-15:2");
  const Plan plan = PlanFor(TwoSockets(), BudgetOf(TwoSockets()), {.bind = "all", .ranks = 2});
  EXPECT_THAT(plan.ranks[0].nodes, ElementsAre(0));
  EXPECT_EQ(plan.ranks[0].threads, 64);
  EXPECT_THAT(plan.reasons, Contains(HasSubstr("divided evenly among 2 ranks")));
  const Plan three = PlanFor(OneSocketSmt(), BudgetOf(OneSocketSmt()), {.bind = "all", .ranks = 3});
  EXPECT_THAT(three.warnings, Contains(HasSubstr("shared by two ranks")));
}

TEST(BindingNobind, PinsNothingAndTakesOmpNumThreads) {
  const Budget budget = BudgetOf(OneSocketSmt());
  const Plan plan = PlanFor(OneSocketSmt(), budget, {.bind = "nobind"});
  EXPECT_THAT(plan.ranks[0].cpus, IsEmpty());
  EXPECT_EQ(plan.ranks[0].threads, 8);
  EXPECT_EQ(
      PlanFor(OneSocketSmt(), budget, {.bind = "nobind", .ranks = 2, .omp = 3}).total_threads(), 6);
  const Plan cut = PlanFor(OneSocketSmt(), budget, {.bind = "nobind", .ranks = 2, .omp = 20});
  EXPECT_EQ(cut.total_threads(), 16);
  EXPECT_THAT(cut.warnings, ElementsAre(HasSubstr("OMP_NUM_THREADS 20")));
  EXPECT_THAT(ErrorFor(OneSocketSmt(), budget, {.bind = "nobind", .omp = 0}),
              HasSubstr("OMP_NUM_THREADS 0"));
}

TEST(BindingNobind, AllowsMoreRanksThanCpus) {
  const Machine two = Imagine("pack:1 numa:1 core:2 pu:1");
  const Plan plan = PlanFor(two, BudgetOf(two), {.bind = "nobind", .ranks = 4});
  EXPECT_EQ(plan.total_threads(), 4);
  EXPECT_THAT(plan.warnings, ElementsAre(HasSubstr("4 threads share 2 CPUs")));
}

TEST(BindingLists, KeepTheirOrder) {
  const Plan plan =
      PlanFor(TwoSockets(), BudgetOf(TwoSockets()), {.bind = " 10,6,2-4:2 | 70,64 ", .ranks = 2});
  EXPECT_THAT(plan.ranks[0].cpus, ElementsAre(10, 6, 2, 4));
  EXPECT_THAT(plan.ranks[1].cpus, ElementsAre(70, 64));
}

TEST(BindingLists, WarnOfSiblingsAndSpannedNodes) {
  const Plan siblings = PlanFor(OneSocketSmt(), BudgetOf(OneSocketSmt()), {.bind = "0-3"});
  EXPECT_THAT(siblings.warnings, ElementsAre(AllOf(HasSubstr("cpus 0 and 1 are siblings"),
                                                   HasSubstr("1 other core"))));
  const Plan across = PlanFor(TwoSockets(), BudgetOf(TwoSockets()), {.bind = "62,64"});
  EXPECT_THAT(across.warnings, ElementsAre(HasSubstr("nodes 0-1")));
  EXPECT_THAT(
      PlanFor(TwoSockets(), BudgetOf(TwoSockets()), {.bind = "0,2|64", .ranks = 2}).warnings,
      IsEmpty());
}

TEST(BindingLists, RefuseInvalidCpus) {
  const Machine& machine = TwoSockets();
  const Budget budget = BudgetOf(machine, "0-63");
  const auto error = [&](const std::string& bind, int ranks) {
    return ErrorFor(machine, budget, {.bind = bind, .ranks = ranks});
  };
  EXPECT_THAT(error("0,128", 1), AllOf(HasSubstr("cpu 128"), HasSubstr("0-127")));
  EXPECT_THAT(error("0,64", 1), AllOf(HasSubstr("cpu 64"), HasSubstr("allowed are 0-63")));
  EXPECT_THAT(error("0-2|2-4", 2), AllOf(HasSubstr("cpu 2 of rank 1"), HasSubstr("rank 0")));
  EXPECT_THAT(error("1,1", 1), HasSubstr("already used"));
  EXPECT_THAT(error("0-2", 2),
              AllOf(HasSubstr("1 list for 2 ranks"), HasSubstr("use 1 rank (-tp times -pp)")));
  EXPECT_THAT(error("0|1|2", 2), HasSubstr("3 lists for 2 ranks"));
  EXPECT_THAT(error("0|", 2), HasSubstr("threads-bind '0|'"));
  EXPECT_THAT(error("3-1", 1), HasSubstr("backwards"));
  EXPECT_THAT(error("", 1), HasSubstr("none of auto, all, nobind"));
  EXPECT_THAT(error("everything", 1), AllOf(HasSubstr("'everything'"), HasSubstr("nobind")));
  EXPECT_THAT(error("0,,1", 1), HasSubstr("''"));
}

TEST(BindingLists, GiveTheRemainingCpusToTheFrontEnd) {
  const Budget budget = BudgetOf(OneSocketSmt());
  EXPECT_EQ(Draw(PlanFor(OneSocketSmt(), budget, {.bind = "0,2,4,6,8,10", .frontend = true})),
            "0-10:2 +12-15");
  EXPECT_EQ(Draw(PlanFor(OneSocketSmt(), budget, {.bind = "0-15", .frontend = true})), "0-15");
  EXPECT_EQ(Draw(PlanFor(OneSocketSmt(), BudgetOf(OneSocketSmt(), {}, 3),
                         {.bind = "0,2", .frontend = true})),
            "0,2 +4");
}

TEST(Plan, ListsItsThreadsInJson) {
  const Json json = ToJson(PlanFor(OneSocketSmt(), BudgetOf(OneSocketSmt()), {.bind = "0,2"}));
  EXPECT_EQ(json.Find("ranks")->array()[0].Dump(),
            R"({"rank":0,"cpus":[0,2],"nodes":[0],"threads":2})");
  EXPECT_EQ(json.Find("frontend_cpus")->Dump(), "[]");
}

}  // namespace
}  // namespace pinion
