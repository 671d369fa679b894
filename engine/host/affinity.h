#pragma once

#include <vector>

#include "engine/base/result.h"

namespace pinion {

// The CPUs that the calling thread may run on now (sched_getaffinity), ascending. Supports 65,536
// CPUs; glibc's cpu_set_t alone ends at 1,024. Error: the system call is forbidden.
Result<std::vector<int>> ThreadAffinity();
// The same of the first thread of a process. Error: there is none.
Result<std::vector<int>> AffinityOf(int process);

// Restricts the calling thread to `cpus`; takes effect before it returns. Errors: the list is
// empty, or a CPU does not exist, is offline, or is outside the cpuset; they name the CPUs and the
// allowed ones.
Status SetThreadAffinity(const std::vector<int>& cpus);

}  // namespace pinion
