#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/strings.h"
#include "engine/host/binding.h"

namespace pinion {

inline Machine Imagine(const std::string& description) {
  auto machine = ImagineMachine(description);
  EXPECT_TRUE(machine) << (machine ? "" : machine.error().message);
  return machine ? *machine : Machine{};
}

inline Budget BudgetOf(const Machine& machine, std::optional<std::string> allowed = {},
                       std::optional<double> quota = {}) {
  BudgetLimits limits;
  if (allowed) limits.allowed_cpus = ParseCpuList(*allowed).value();
  limits.cpu_quota = quota;
  auto budget = ComputeBudget(machine, limits);
  EXPECT_TRUE(budget) << (budget ? "" : budget.error().message);
  return budget ? *budget : Budget{};
}

// "0-3|4-7 +8" for two ranks and a front end on cpu 8.
inline std::string Draw(const Plan& plan) {
  std::vector<std::string> ranks;
  for (const RankPlan& rank : plan.ranks) ranks.push_back(FormatCpuList(rank.cpus));
  const std::string frontend = FormatCpuList(plan.frontend_cpus);
  return Join(ranks, "|") + (frontend.empty() ? "" : " +" + frontend);
}

// 0,2,4,... for the first, 1,3,5,... for the second hyperthread of each core: with gaps for missing
// cores. Built by hand: hwloc's synthetic machines number their CPUs without gaps.
inline Machine SparseMachine(const std::vector<std::vector<int>>& cpus_of_core,
                             int cores_per_node) {
  Machine machine;
  machine.name = "sparse";
  machine.this_system = false;
  for (size_t core = 0; core < cpus_of_core.size(); ++core) {
    const int node = static_cast<int>(core) / cores_per_node;
    if (machine.nodes.empty() || machine.nodes.back().id != node)
      machine.nodes.push_back({node, {}, uint64_t{1} << 30, true});
    for (size_t i = 0; i < cpus_of_core[core].size(); ++i) {
      machine.cpus.push_back(
          {cpus_of_core[core][i], static_cast<int>(core), static_cast<int>(i), node, node, node});
      machine.nodes.back().cpus.push_back(cpus_of_core[core][i]);
    }
  }
  std::sort(machine.cpus.begin(), machine.cpus.end(),
            [](const Cpu& a, const Cpu& b) { return a.id < b.id; });
  return machine;
}

// One socket of large cores with two hardware threads each, and then small ones with one: 0,1 | 2,3
// | ... | n | n+1 | ...
inline Machine LargeAndSmallCores(int large, int small) {
  std::vector<std::vector<int>> cpus_of_core;
  for (int core = 0, next = 0; core < large + small; ++core) {
    cpus_of_core.emplace_back();
    for (int thread = 0; thread < (core < large ? 2 : 1); ++thread)
      cpus_of_core.back().push_back(next++);
  }
  Machine machine = SparseMachine(cpus_of_core, large + small);
  machine.kinds = {{"efficiency", true}, {"performance", false}};
  for (Cpu& cpu : machine.cpus) cpu.kind = cpu.core < large ? 1 : 0;
  return machine;
}

}  // namespace pinion
