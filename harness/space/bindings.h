#pragma once

#include <string>
#include <vector>

#include "harness/space/expand.h"

namespace pinion::harness {

// CPU lists for --threads-bind, for so many ranks.
struct ExplicitBinding {
  std::string list;
  int ranks = 1;
};

// Every second core that auto takes, so that each node and cache keeps its share of threads: if
// memory bandwidth is the limit, half the threads may be as fast and leave cores for other work. ""
// if there are fewer than two cores.
std::string HalfTheCores(const Host& host);

// Lists made from the topology of the usable CPUs, one hardware thread a core unless said
// otherwise: half the cores; the first socket, NUMA node and L3 domain alone; if cores are of
// several kinds, those of each kind, and all; a rank on each node, also with all hardware threads;
// a rank on each L3 domain if there are at most 16. Efficiency cores are in the lists by kind
// alone. No list twice, and none that holds the cores of auto for one rank.
std::vector<ExplicitBinding> ExplicitBindings(const Host& host);

// Places that have usable CPUs.
int NodesWithCpus(const Host& host);
int SocketsWithCpus(const Host& host);
bool HasSiblings(const Host& host);

}  // namespace pinion::harness
