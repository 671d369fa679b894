#pragma once

#include <cstdint>

namespace pinion::harness {

// CPU time that this process and all it started took up to now, an engine's server and its workers
// included, in the ticks of /proc/stat. Of those that have ended only what their parents waited for
// counts. 0 without /proc.
uint64_t OwnTicks();

}  // namespace pinion::harness
