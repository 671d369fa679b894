#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/host/budget.h"
#include "engine/host/machine.h"

namespace pinion {

// A physical core, reduced to the CPUs in the budget.
struct Core {
  int node, l3, core;
  std::vector<int> cpus;  // its allowed logical CPUs; one thread per core runs on the first
  int kind = 0;           // as Cpu::kind
};

// The budget's cores, ordered by node, L3 domain and first CPU: neighbours share most.
std::vector<Core> AllowedCores(const Machine& machine, const Budget& budget);

// Cores for ranks and the others, in AllowedCores' order.
struct ChosenCores {
  std::vector<Core> computing, left_out;
};
// Leaves efficiency cores out if `least` others remain: a step ends when its slowest thread does.
// llama.cpp does the same.
ChosenCores WithoutEfficiencyCores(const Machine& machine, std::vector<Core> cores, size_t least);

// "cpu 0-7 are performance, cpu 8-15 efficiency cores"; "" if these CPUs are of one kind.
std::string DescribeKinds(const Machine& machine, const std::vector<int>& cpus);
// The same, with its effect on the ranks that compute there; "" unless some of the CPUs are
// efficiency cores and others are not.
std::string WarningOfKinds(const Machine& machine, const std::vector<int>& cpus);

// Divides `cores` (in AllowedCores' order) into `parts` runs: whole nodes if there are enough,
// else whole L3 domains, else single cores. Each part has at least one core.
// Requires 1 <= parts <= cores.size().
std::vector<std::vector<Core>> DivideCores(const std::vector<Core>& cores, size_t parts);

// Cuts these CPUs, in their order, into groups for Phases: of neighbours that share an L3 cache, as
// even as possible and of at most 8, where two levels of words cost the least for 64 threads. If
// the order goes back and forth between caches, they do not count. Returns the size of each group.
std::vector<int> GroupsOfCpus(const Machine& machine, const std::vector<int>& cpus);

// The NUMA nodes of these CPUs, ascending.
std::vector<int> NodesOfCpus(const Machine& machine, const std::vector<int>& cpus);

}  // namespace pinion
