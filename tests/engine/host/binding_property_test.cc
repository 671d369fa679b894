// Rules that hold on every machine, tried on random ones.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "engine/host/binding.h"
#include "engine/host/cores.h"
#include "tests/engine/host/imagined.h"

namespace pinion {
namespace {

class Dice {
 public:
  explicit Dice(unsigned seed) : rng_(seed) {}
  int From(int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng_); }
  bool OneIn(int n) { return From(1, n) == 1; }

 private:
  std::mt19937 rng_;
};

// Nodes of different sizes, L3 domains inside them, 1-4 logical CPUs a core, CPU numbers shuffled
// over a range with gaps, some nodes' memory forbidden.
Machine RandomMachine(Dice& dice) {
  Machine machine;
  machine.name = "random";
  machine.this_system = false;
  std::vector<int> ids(600);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int>(i);
  for (size_t i = ids.size() - 1; i > 0; --i)
    std::swap(ids[i], ids[static_cast<size_t>(dice.From(0, static_cast<int>(i)))]);
  int core = 0, l3 = 0;
  for (int node = 0, nodes = dice.From(1, 5); node < nodes; ++node) {
    machine.nodes.push_back({node * 2, {}, uint64_t{1} << 34, !dice.OneIn(8)});
    const int siblings = dice.From(1, 4);
    for (int domain = 0, domains = dice.From(1, 4); domain < domains; ++domain, ++l3) {
      for (int c = 0, cores = dice.From(1, 6); c < cores; ++c, ++core) {
        for (int sibling = 0; sibling < siblings; ++sibling) {
          machine.cpus.push_back({ids.back(), core, sibling, l3, node / 2, node * 2});
          machine.nodes.back().cpus.push_back(ids.back());
          ids.pop_back();
        }
      }
    }
    std::sort(machine.nodes.back().cpus.begin(), machine.nodes.back().cpus.end());
  }
  if (dice.OneIn(3)) {
    machine.kinds = {{"efficiency", true}, {"performance", false}};
    std::map<int, int> kind_of_core;
    for (Cpu& cpu : machine.cpus)
      cpu.kind = kind_of_core.try_emplace(cpu.core, dice.From(0, 1)).first->second;
  }
  std::sort(machine.cpus.begin(), machine.cpus.end(),
            [](const Cpu& a, const Cpu& b) { return a.id < b.id; });
  return machine;
}

Budget RandomBudget(Dice& dice, const Machine& machine) {
  BudgetLimits limits;
  if (dice.OneIn(2)) {
    limits.allowed_cpus.emplace();
    for (const Cpu& cpu : machine.cpus)
      if (!dice.OneIn(3)) limits.allowed_cpus->push_back(cpu.id);
    if (limits.allowed_cpus->empty()) limits.allowed_cpus->push_back(machine.cpus[0].id);
  }
  if (dice.OneIn(2)) limits.cpu_quota = dice.From(1, 300) / 10.0;
  return ComputeBudget(machine, limits).value();
}

// Up to three lists of CPUs that exist; now and then one is used twice or forbidden.
std::string RandomLists(Dice& dice, const Machine& machine, int ranks) {
  std::vector<std::string> lists;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<int> cpus;
    for (int i = 0, count = dice.From(1, 4); i < count; ++i)
      cpus.push_back(
          machine.cpus[static_cast<size_t>(dice.From(0, static_cast<int>(machine.cpus.size()) - 1))]
              .id);
    lists.push_back(FormatCpuList(cpus));
  }
  return Join(lists, "|");
}

BindingRequest RandomRequest(Dice& dice, const Machine& machine) {
  BindingRequest request;
  request.ranks = dice.From(1, dice.OneIn(3) ? 12 : 4);
  const std::vector<std::string> modes = {"auto", "auto", "all", "nobind",
                                          RandomLists(dice, machine, request.ranks)};
  request.threads_bind = modes[static_cast<size_t>(dice.From(0, 4))];
  if (dice.OneIn(3)) request.reserved_cpus = dice.From(0, 5);
  request.has_frontend = dice.OneIn(2);
  if (dice.OneIn(4)) request.nobind_threads = dice.From(1, 40);
  return request;
}

// Rules of every plan, whatever the mode.
void CheckPlan(const Machine& machine, const Budget& budget, const BindingRequest& request,
               const Plan& plan) {
  ASSERT_EQ(static_cast<int>(plan.ranks.size()), request.ranks);
  const bool pinned = request.threads_bind != "nobind";
  std::set<int> used;
  const auto use = [&](int cpu) {
    EXPECT_TRUE(std::binary_search(budget.cpus.begin(), budget.cpus.end(), cpu)) << cpu;
    EXPECT_TRUE(used.insert(cpu).second) << "cpu " << cpu << " is used twice";
  };
  for (const RankPlan& rank : plan.ranks) {
    EXPECT_GE(rank.threads, 1);
    EXPECT_EQ(rank.cpus.size(), pinned ? static_cast<size_t>(rank.threads) : 0u);
    if (pinned) {
      EXPECT_EQ(rank.nodes, NodesOfCpus(machine, rank.cpus));
    }
    for (int cpu : rank.cpus) use(cpu);
  }
  for (int cpu : plan.frontend_cpus) use(cpu);
  const int together = plan.total_threads() + static_cast<int>(plan.frontend_cpus.size());
  if (pinned || request.ranks <= budget.max_threads) {
    EXPECT_LE(together, budget.max_threads);
  }
}

void CheckAuto(const Machine& machine, const Budget& budget, const BindingRequest& request,
               const Plan& plan) {
  std::map<int, int> rank_of_core;
  for (const RankPlan& rank : plan.ranks)
    for (int cpu : rank.cpus)
      EXPECT_TRUE(rank_of_core.try_emplace(machine.Find(cpu)->core, rank.rank).second)
          << "two threads on a core";
  for (int cpu : plan.frontend_cpus)
    EXPECT_EQ(rank_of_core.count(machine.Find(cpu)->core), 0u) << "the front end shares a core";
  if (request.reserved_cpus) {
    EXPECT_EQ(static_cast<int>(plan.frontend_cpus.size()), *request.reserved_cpus);
  }
  // Of machines with two kinds of cores, efficiency cores may be left idle.
  std::set<int> all, performance;
  for (const Cpu& cpu : machine.cpus) {
    if (std::find(budget.cpus.begin(), budget.cpus.end(), cpu.id) == budget.cpus.end()) continue;
    all.insert(cpu.core);
    const bool is_efficiency =
        !machine.kinds.empty() && machine.kinds[static_cast<size_t>(cpu.kind)].is_efficiency;
    if (!is_efficiency) performance.insert(cpu.core);
  }
  const bool suffice = performance.size() >= static_cast<size_t>(request.ranks);
  const size_t cores = suffice ? performance.size() : all.size();
  const auto together = static_cast<size_t>(plan.total_threads()) + plan.frontend_cpus.size();
  if (together < std::min(cores, static_cast<size_t>(budget.max_threads))) {
    EXPECT_THAT(plan.warnings, ::testing::Contains(::testing::HasSubstr("idle"))) << "unsaid";
  }
}

void CheckAll(const Budget& budget, const Plan& plan) {
  const auto [least, most] = std::minmax_element(
      plan.ranks.begin(), plan.ranks.end(),
      [](const RankPlan& a, const RankPlan& b) { return a.threads < b.threads; });
  EXPECT_LE(most->threads - least->threads, 1);
  EXPECT_EQ(plan.total_threads(), budget.max_threads);
}

TEST(BindingOnRandomMachines, KeepsItsPromises) {
  std::map<std::string, int> planned;
  for (unsigned seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(seed);
    Dice dice(seed);
    const Machine machine = RandomMachine(dice);
    const Budget budget = RandomBudget(dice, machine);
    const BindingRequest request = RandomRequest(dice, machine);
    const auto plan = MakePlan(machine, budget, request);
    if (!plan) {
      EXPECT_EQ(plan.error().code, ErrorCode::kUsage);
      EXPECT_FALSE(plan.error().message.empty());
      continue;
    }
    const std::string& bind = request.threads_bind;
    ++planned[bind == "auto" || bind == "all" || bind == "nobind" ? bind : "lists"];
    CheckPlan(machine, budget, request, *plan);
    if (bind == "auto") CheckAuto(machine, budget, request, *plan);
    if (bind == "all") CheckAll(budget, *plan);
    if (testing::Test::HasFailure())
      FAIL() << bind << " -tp " << request.ranks << ": " << Draw(*plan);
  }
  for (const char* mode : {"auto", "all", "nobind", "lists"})
    EXPECT_GT(planned[mode], 50) << mode << ": too few plans to mean anything";
}

TEST(BindingOnRandomMachines, AutoFailsOnlyIfItMust) {
  for (unsigned seed = 1; seed <= 1000; ++seed) {
    Dice dice(seed);
    const Machine machine = RandomMachine(dice);
    const Budget budget = RandomBudget(dice, machine);
    BindingRequest request;
    request.ranks = dice.From(1, 12);
    const bool fits = request.ranks <= budget.max_threads &&
                      static_cast<size_t>(request.ranks) <= AllowedCores(machine, budget).size();
    EXPECT_EQ(MakePlan(machine, budget, request).has_value(), fits) << seed;
  }
}

TEST(DivideCores, NeverSharesANodeOrAnL3IfThereAreEnough) {
  for (unsigned seed = 1; seed <= 500; ++seed) {
    Dice dice(seed);
    const Machine machine = RandomMachine(dice);
    const std::vector<Core> cores = AllowedCores(machine, ComputeBudget(machine).value());
    std::set<int> nodes, l3s;
    for (const Core& core : cores) {
      nodes.insert(core.node);
      l3s.insert(core.l3);
    }
    const size_t parts = static_cast<size_t>(dice.From(1, static_cast<int>(cores.size())));
    std::map<int, std::set<size_t>> parts_of_node, parts_of_l3;
    size_t total = 0;
    const auto divided = DivideCores(cores, parts);
    ASSERT_EQ(divided.size(), parts);
    for (size_t part = 0; part < parts; ++part) {
      ASSERT_FALSE(divided[part].empty());
      total += divided[part].size();
      for (const Core& core : divided[part]) {
        parts_of_node[core.node].insert(part);
        parts_of_l3[core.l3].insert(part);
      }
    }
    const auto shared = [](const auto& parts_of) {
      return std::any_of(parts_of.begin(), parts_of.end(),
                         [](const auto& entry) { return entry.second.size() > 1; });
    };
    if (parts <= nodes.size()) {
      EXPECT_FALSE(shared(parts_of_node)) << seed;
      EXPECT_EQ(total, cores.size()) << seed;
    }
    if (nodes.size() == 1 && parts <= l3s.size()) {
      EXPECT_FALSE(shared(parts_of_l3)) << seed;
    }
  }
}

}  // namespace
}  // namespace pinion
