#pragma once

#include <string>

#include "engine/run/start.h"

namespace pinion {

// Finds the NUMA nodes that hold the weights and KV of a warm model: fills info.placement, warns of
// weights outside the plan's nodes, and returns a line for the log.
std::string FindPlacement(StartedModel& model);

}  // namespace pinion
