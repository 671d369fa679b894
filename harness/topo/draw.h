#pragma once

#include <string>

#include "harness/topo/examine.h"

namespace pinion::harness {

// The machine as a picture of at most 100 columns: a box per socket, in it each node's cores
// with one mark per logical CPU (which rank computes there, the front end, idle, not allowed), then
// the budget, the plan and suggestions. `colour`: with ANSI escapes.
std::string DrawTopology(const Topology& topology, bool colour);

}  // namespace pinion::harness
