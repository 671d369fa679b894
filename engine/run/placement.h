#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/run/start.h"

namespace pinion {

// {"asked":"strict","in_force":"local","refusal":"..."}; the last is null if they are the same.
Json MemoryPolicyOf(const StartedModel& model);

// The share of {node, bytes} that is not on the planned nodes; nullopt if there is nothing, or no
// node is planned.
std::optional<double> RemoteShare(const std::vector<int>& planned,
                                  const std::vector<std::pair<int, uint64_t>>& bytes);

// A larger share of the weights is warned of; less may be shared pages, or the error of the sample.
inline constexpr double kRemoteWarning = 0.05;

// The NUMA nodes that hold the weights and KV of each rank now, as EngineInfo::placement says.
Json PlacementOf(const StartedModel& model);

// The same for a model that is warm: fills info.placement, warns of weights outside the plan's
// nodes, and returns a line for the log.
std::string FindPlacement(StartedModel& model);

}  // namespace pinion
