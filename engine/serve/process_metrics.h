#pragma once

#include <string>

namespace pinion {

// What every Prometheus client tells of its own process, in the text format: CPU time, memory,
// descriptors, start. What cannot be read is left out.
std::string ProcessMetrics();

}  // namespace pinion
