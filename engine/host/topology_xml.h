#pragma once

#include <string>

#include "engine/base/result.h"

namespace pinion {

// This machine as hwloc sees it, in the form that `lstopo --of xml` writes and ImagineMachine
// reads, so that plans for the machine can be made elsewhere.
Result<std::string> TopologyXml();

}  // namespace pinion
