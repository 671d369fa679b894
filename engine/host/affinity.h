#pragma once

#include <vector>

#include "engine/base/result.h"

namespace pinion {

// The CPUs that the calling thread may run on now (sched_getaffinity), ascending. Machines of up to
// 65,536 CPUs, where glibc's cpu_set_t ends at 1,024. Error: the system call is forbidden.
Result<std::vector<int>> ThreadAffinity();

// Lets the calling thread run on `cpus` only; takes effect before it returns. Errors name the CPUs
// and what is allowed instead: the list is empty, a CPU does not exist, is offline, or is outside
// the cpuset.
Status SetThreadAffinity(const std::vector<int>& cpus);

}  // namespace pinion
