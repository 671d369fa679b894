#pragma once

#include <cstdint>

namespace pinion::harness {

// CPU time so far of this process and its descendants, an engine's server and its workers
// included, in the ticks of /proc/stat. Children that have ended count if their parents waited for
// them. 0 without /proc.
uint64_t OwnTicks();

}  // namespace pinion::harness
