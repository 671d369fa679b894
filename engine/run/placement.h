#pragma once

#include <string>

#include "engine/run/start.h"

namespace pinion {

// Where weights and KV of a warm model have come to lie: fills info.placement, warns of weights
// that lie on other nodes than the plan's, and says it for a person.
std::string FindPlacement(StartedModel& model);

}  // namespace pinion
