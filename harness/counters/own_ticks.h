#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace pinion::harness {

// CPU time so far of these processes and of their descendants, in the ticks of /proc/stat. Children
// that have ended count if their parents waited for them. 0 without /proc.
uint64_t TicksOf(const std::vector<pid_t>& roots);

// The same of this process, of `others` and of their descendants, an engine's server and its
// workers included.
uint64_t OwnTicks(std::vector<pid_t> others = {});

}  // namespace pinion::harness
