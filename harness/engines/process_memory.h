#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace pinion::harness {

// The sum of the peak resident memory of these processes. Memory that some of them share, such as
// the weights of engines behind one front end, counts once; pages of files count each time.
uint64_t PeakMemoryBytes(const std::vector<pid_t>& processes);

}  // namespace pinion::harness
