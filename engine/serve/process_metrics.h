#pragma once

#include <string>

namespace pinion {

// The metrics that every Prometheus client has of its own process, in the text format: CPU time,
// memory, descriptors, start. Values that cannot be read are left out.
std::string ProcessMetrics();

}  // namespace pinion
