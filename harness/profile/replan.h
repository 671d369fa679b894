#pragma once

#include <optional>
#include <string>

#include "engine/base/json.h"
#include "engine/host/binding.h"
#include "engine/host/budget.h"
#include "engine/host/machine.h"
#include "engine/run/options.h"

// A profile's plan of CPUs inside the CPUs that this process gets, which a container or a job may
// have chosen.

namespace pinion::harness {

// CPU lists in place of the profile's, if those name CPUs that cannot be used here: as many CPUs
// for each rank as the profile has, fewer if there are not enough, one of each core, the ranks on
// nodes and caches of their own (`auto`, engine/host). nullopt if the profile's binding can stay as
// it is, or if nothing fits in its place. `ranks`: of all engines.
std::optional<std::string> ListsHere(const EngineOptions& options, int ranks,
                                     const Machine& machine, const Budget& budget);

// Difference between the plan that was measured (evidence "plan" of a profile; null if it has none)
// and the one here, a sentence or none.
std::optional<std::string> DifferenceOfPlans(const Json* measured, const Plan& here);

}  // namespace pinion::harness
