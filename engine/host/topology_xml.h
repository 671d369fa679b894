#pragma once

#include <string>

#include "engine/base/result.h"

namespace pinion {

// This machine as hwloc sees it, in the form that `lstopo --of xml` writes and ImagineMachine
// reads: whoever has the text can plan for the machine later.
Result<std::string> TopologyXml();

}  // namespace pinion
