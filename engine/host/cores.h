#pragma once

#include <cstddef>
#include <vector>

#include "engine/host/budget.h"
#include "engine/host/machine.h"

namespace pinion {

// A physical core, reduced to the CPUs in the budget.
struct Core {
  int node, l3, core;
  std::vector<int> cpus;  // its allowed logical CPUs; one thread per core runs on the first
};

// The budget's cores, ordered by node, L3 domain and first CPU: neighbours share most.
std::vector<Core> AllowedCores(const Machine& machine, const Budget& budget);

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
