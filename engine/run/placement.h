#pragma once

#include <string>

#include "engine/run/start.h"

namespace pinion {

// The NUMA nodes that hold the weights and KV of each rank now, as EngineInfo::placement says.
Json PlacementOf(const StartedModel& model);

// The same for a model that is warm: fills info.placement, warns of weights outside the plan's
// nodes, and returns a line for the log.
std::string FindPlacement(StartedModel& model);

}  // namespace pinion
