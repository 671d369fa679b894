#include "engine/run/replicas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/run/capacity.h"
#include "engine/run/start.h"

namespace pinion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// Two nodes of four cores.
struct Imagined {
  Machine machine = *ImagineMachine("pack:2 numa:1 core:4 pu:1");
  Budget budget = *ComputeBudget(machine);
};

EngineOptions Options(const std::string& bind = "auto", int ranks = 1) {
  EngineOptions options;
  options.model = "preset:tiny";
  options.threads_bind = bind;
  options.tensor_parallel = ranks;
  return options;
}

Plan PlanOf(const EngineOptions& options, int replicas) {
  const Imagined here;
  const auto plan = PlanReplicas(options, replicas, here.machine, here.budget);
  EXPECT_TRUE(plan) << (plan ? "" : plan.error().message);
  return plan ? *plan : Plan{};
}

std::string ErrorFor(const EngineOptions& options, int replicas) {
  const Imagined here;
  const auto plan = PlanReplicas(options, replicas, here.machine, here.budget);
  EXPECT_FALSE(plan);
  return plan ? "" : plan.error().message;
}

TEST(PlanReplicas, DividesTheMachineAsAmongRanks) {
  const Plan whole = PlanOf(Options(), 2);
  const Plan first = PlanOfReplica(whole, 2, 0), second = PlanOfReplica(whole, 2, 1);
  EXPECT_THAT(first.ranks.at(0).cpus, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(second.ranks.at(0).cpus, ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(second.ranks.at(0).nodes, ElementsAre(1));
  EXPECT_EQ(second.ranks.at(0).rank, 0);
}

TEST(PlanReplicas, EachHasRanksOfItsOwn) {
  const Plan whole = PlanOf(Options("auto", 2), 2);
  ASSERT_EQ(whole.ranks.size(), 4u);
  const Plan second = PlanOfReplica(whole, 2, 1);
  ASSERT_EQ(second.ranks.size(), 2u);
  EXPECT_EQ(OptionsOfReplica(Options("auto", 2), second).threads_bind, "4-5|6-7");
  EXPECT_EQ(second.ranks[1].rank, 1);
}

TEST(PlanReplicas, ListsAreOnePerRankOfEveryReplica) {
  const Plan whole = PlanOf(Options("0-1|2|4-5|6", 2), 2);
  EXPECT_EQ(OptionsOfReplica(Options(), PlanOfReplica(whole, 2, 1)).threads_bind, "4-5|6");
  const std::string error = ErrorFor(Options("0-1|2-3", 2), 2);
  EXPECT_THAT(error, HasSubstr("2 replicas x 2 = 4 ranks in all"));
  EXPECT_THAT(error, HasSubstr("has 2 lists for 4 ranks"));
}

EngineOptions Staged(const std::string& bind, int ranks, int stages) {
  EngineOptions options = Options(bind, ranks);
  options.pipeline_parallel = stages;
  return options;
}

// Tensor x pipeline x replicas: two replicas of two stages of two ranks on eight cores.
TEST(PlanReplicas, EachHasStagesOfItsOwn) {
  const Plan whole = PlanOf(Staged("auto", 2, 2), 2);
  ASSERT_EQ(whole.ranks.size(), 8u);
  const Plan second = PlanOfReplica(whole, 2, 1);
  ASSERT_EQ(second.ranks.size(), 4u);
  EXPECT_EQ(OptionsOfReplica(Staged("auto", 2, 2), second).threads_bind, "4|5|6|7");
  EXPECT_EQ(second.ranks[3].rank, 3);
  EXPECT_EQ(PlanOf(Staged("nobind", 4, 4), 2).ranks.size(), 32u) << "CPUs may be shared";
  EXPECT_THAT(ErrorFor(Staged("0|1|2|3", 2, 2), 2), HasSubstr("2 replicas x 4 = 8 ranks in all"));
}

// Every way out that it names fits.
TEST(PlanReplicas, RefusesMoreRanksThanCpusAndSaysHowManyFit) {
  EXPECT_EQ(ErrorFor(Options("auto", 3), 3),
            "3 replicas of 3 ranks (-tp 3 -pp 1) cannot have a CPU for each rank: 8 threads may "
            "run at once here; use --data-parallel-size 2 or less, 2 ranks or fewer in each (-tp "
            "times -pp), or --threads-bind nobind");
  PlanOf(Options("auto", 3), 2);
  PlanOf(Options("auto", 2), 3);
  EXPECT_THAT(ErrorFor(Staged("auto", 2, 2), 4),
              HasSubstr("4 replicas of 4 ranks (-tp 2 -pp 2) cannot have a CPU for each rank: 8 "
                        "threads may run at once here; use --data-parallel-size 2 or less, 2 ranks "
                        "or fewer in each (-tp times -pp), or "));
  PlanOf(Staged("auto", 2, 2), 2);
  PlanOf(Staged("auto", 1, 2), 4);
  PlanOf(Staged("nobind", 2, 2), 4);
  EXPECT_THAT(ErrorFor(Staged("auto", 3, 3), 2), HasSubstr("here; use 4 ranks or fewer in each"));
  PlanOf(Staged("auto", 2, 2), 2);
  EXPECT_THAT(ErrorFor(Options("auto", 1), 9),
              HasSubstr("9 replicas of 1 rank (-tp 1 -pp 1) cannot have a CPU for each rank: 8 "
                        "threads may run at once here; use --data-parallel-size 8 or less, or "));
  PlanOf(Options("auto", 1), 8);
  EXPECT_THAT(ErrorFor(Staged("auto", 3, 3), 9),
              HasSubstr("use 8 ranks or fewer in all (--data-parallel-size times -tp times -pp), "
                        "or --threads-bind nobind"));
  PlanOf(Staged("auto", 2, 2), 2);
  EXPECT_THAT(ErrorFor(Staged("auto", 2, 4), 5),
              HasSubstr("use --data-parallel-size 1, 1 rank in each (-tp times -pp), or "));
  PlanOf(Staged("auto", 2, 4), 1);
  PlanOf(Options("auto", 1), 5);
  EXPECT_THAT(ErrorFor(Options(), 0), HasSubstr("replicas is 0; it must be from 1 to"));
}

TEST(PlanReplicas, FrontEndsShareTheReservedCpus) {
  EngineOptions options = Options();
  options.reserved_cpus = 2;
  const Plan whole = PlanOf(options, 2);
  const Plan second = PlanOfReplica(whole, 2, 1);
  EXPECT_THAT(second.ranks.at(0).cpus, ElementsAre(4, 5, 6));
  EXPECT_THAT(whole.frontend_cpus, ElementsAre(3, 7));
  EXPECT_THAT(CpusOfReplica(second), ElementsAre(3, 4, 5, 6, 7));
}

// A replica's options lead to the same plan in a process that may run only on its own CPUs.
TEST(PlanReplicas, AReplicaArrivesAtItsPlanByItself) {
  Imagined here;
  EngineOptions options = Options("auto", 2);
  options.reserved_cpus = 1;
  options.has_frontend = true;
  const Plan plan = PlanOfReplica(PlanOf(options, 2), 2, 0);
  const Budget own = *ComputeBudget(here.machine, {CpusOfReplica(plan), std::nullopt});
  const auto again = PlanReplicas(OptionsOfReplica(options, plan), 1, here.machine, own);
  ASSERT_TRUE(again) << again.error().message;
  ASSERT_EQ(again->ranks.size(), 2u);
  EXPECT_EQ(again->ranks[0].cpus, plan.ranks[0].cpus);
  EXPECT_EQ(again->ranks[1].cpus, plan.ranks[1].cpus);
  EXPECT_EQ(again->frontend_cpus, plan.frontend_cpus);
}

TEST(PlanReplicas, WithoutBindingEachIsToldItsShareOfThreads) {
  unsetenv("OMP_NUM_THREADS");  // other tests of this program set it
  const Plan plan = PlanOfReplica(PlanOf(Options("nobind"), 4), 4, 3);
  EXPECT_THAT(EnvironmentOfReplica(plan), ElementsAre(Pair("OMP_NUM_THREADS", "2")));
  EXPECT_THAT(CpusOfReplica(plan), IsEmpty());
  EXPECT_EQ(OptionsOfReplica(Options("nobind"), plan).threads_bind, "nobind");
  EXPECT_THAT(EnvironmentOfReplica(PlanOf(Options(), 1)), IsEmpty());
}

TEST(KvShare, ReplicasShareTheMemoryLeftAfterLoadingAll) {
  EngineOptions options = Options();
  options.max_num_seqs = 1 << 20;  // so that memory is the limit
  Budget budget;
  budget.memory_available_bytes = uint64_t{8} << 30;
  const auto one = KvShareBytes(options, 1, 1, budget), four = KvShareBytes(options, 4, 4, budget);
  ASSERT_TRUE(one && four);
  EXPECT_LT(*one, uint64_t{4} << 30);  // half of the free memory, as one engine takes
  EXPECT_GT(*one, uint64_t{3} << 30);
  EXPECT_LT(4 * *four, *one);  // four times the weights
  EXPECT_GT(4 * *four, *one * 8 / 10);
  EXPECT_GT(*KvShareBytes(options, 4, 1, budget), *four) << "weights that are shared count once";
  EXPECT_LT(4 * *KvShareBytes(options, 4, 1, budget), *one);
  budget.memory_available_bytes = 0;
  EXPECT_GT(*KvShareBytes(options, 2, 2, budget), 0u);  // one block, that the engine may refuse
}

TEST(WeightCopies, ReplicasOnTheSameNodesShareOne) {
  const auto copies = [](const EngineOptions& options, int replicas) {
    return CopiesOfWeights(options, replicas, PlanOf(options, replicas));
  };
  EXPECT_THAT(copies(Options(), 1), ElementsAre(0));
  EXPECT_THAT(copies(Options(), 2), ElementsAre(0, 1));
  EXPECT_THAT(copies(Options(), 4), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(copies(Options("auto", 2), 2), ElementsAre(0, 1));
  EXPECT_THAT(copies(Options("auto", 2), 4), ElementsAre(0, 0, 1, 1));
  // By the nodes of all ranks in their order.
  EXPECT_THAT(copies(Options("0|4|1|5|6|2", 2), 3), ElementsAre(0, 0, 1));
  EXPECT_THAT(copies(Options("0|4|1"), 3), ElementsAre(0, 1, 0));
  // The process that packs would place the pages for its own threads.
  EXPECT_THAT(copies(Options("0,4|1,5"), 2), ElementsAre(0, 1));
  EngineOptions off = Options(), interleaved = Options();
  off.share_weights = "off";
  interleaved.memory_policy = "interleave";
  EXPECT_THAT(copies(off, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(copies(interleaved, 4), ElementsAre(0, 1, 2, 3));
}

// Four replicas on two nodes, which have memory for so many copies of the weights in all.
struct Sharing {
  Imagined here;
  EngineOptions options = Options();
  PlannedModel model = *PlanModel(options);

  explicit Sharing(const std::string& share, uint64_t copies) {
    options.share_weights = share;
    options.max_model_len = 16;
    const RankNeeds needs = NeedsFor(options, model)->front();
    EXPECT_GT(needs.weights, 0u);
    here.budget.memory_available_bytes =
        copies * needs.weights + 4 * (needs.workspace + needs.kv.StorageBytes(1));
  }
  Plan plan() const { return PlanOf(options, 4); }
  bool Fits() const {
    return CheckReplicasFit(options, 4, model, here.machine, here.budget, plan()).has_value();
  }
  bool Shares(const PageSizes& pages) const {
    const auto shares = SharesWeights(options, 4, model, here.machine, here.budget, plan(), pages);
    EXPECT_TRUE(shares) << shares.error().message;
    return shares && *shares;
  }
};

TEST(WeightCopies, OneThatIsSharedIsCountedOnce) {
  EXPECT_TRUE(Sharing("auto", 2).Fits());
  EXPECT_FALSE(Sharing("auto", 1).Fits()) << "each node has one";
  EXPECT_FALSE(Sharing("off", 3).Fits());
  EXPECT_TRUE(Sharing("off", 4).Fits());
}

TEST(WeightCopies, AreSharedIfThatCostsNoSpeedOrMemoryAsksForIt) {
  constexpr PageSizes kBothHuge = {true, true}, kBothSmall = {false, false},
                      kSlower = {false, true};
  for (const PageSizes& pages : {kBothHuge, kBothSmall, kSlower}) {
    EXPECT_TRUE(Sharing("on", 4).Shares(pages));
    EXPECT_FALSE(Sharing("off", 4).Shares(pages));
    EXPECT_TRUE(Sharing("auto", 2).Shares(pages));
  }
  EXPECT_TRUE(Sharing("auto", 4).Shares(kBothHuge));
  EXPECT_TRUE(Sharing("auto", 4).Shares(kBothSmall));
  EXPECT_FALSE(Sharing("auto", 4).Shares(kSlower));
  EXPECT_FALSE(*SharesWeights(Options(), 2, *PlanModel(Options()), Imagined().machine,
                              Imagined().budget, PlanOf(Options(), 2), kBothHuge))
      << "one on each node";
}

// Two nodes with four CPUs each.
TEST(WeightCopies, TheLogSaysWhyNoneIsShared) {
  const auto why = [](const std::string& bind, int replicas, const std::string& share = "on",
                      const std::string& policy = "local") {
    EngineOptions options = Options(bind);
    options.share_weights = share;
    options.memory_policy = policy;
    return WhyUnshared(options, replicas, PlanOf(options, replicas));
  };
  EXPECT_THAT(why("auto", 1), HasSubstr("--share-weights on has no effect: there is one engine"));
  EXPECT_THAT(why("auto", 2), HasSubstr("each of the 2 engines is on NUMA nodes of its own"));
  EXPECT_THAT(why("auto", 4, "on", "interleave"), HasSubstr("--memory-policy interleave"));
  EXPECT_THAT(why("0,4|1,5", 2), HasSubstr("--threads-bind 0,4|1,5 leaves engine 0 a rank"));
  EXPECT_EQ(why("auto", 4), "") << "two on each node";
  EXPECT_EQ(why("0|4|1", 3), "") << "two of three";
  for (const char* other : {"auto", "off"}) EXPECT_EQ(why("auto", 2, other), "");
}

TEST(WeightCopies, PackedWeightsOfAnotherAreNotNeededAgain) {
  std::vector<RankNeeds> needs(2);
  needs[0].weights = 100;
  needs[1].weights = 50;
  LeaveOutPacked(120, needs);
  EXPECT_EQ(needs[0].weights, 0u);
  EXPECT_EQ(needs[1].weights, 30u);
  LeaveOutPacked(uint64_t{1} << 40, needs);
  EXPECT_EQ(needs[1].weights, 0u);
}

}  // namespace
}  // namespace pinion
