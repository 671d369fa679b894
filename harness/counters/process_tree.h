#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace pinion::harness {

struct TreeProcess {
  pid_t id = 0;
  // CPU time so far, in the ticks of /proc/stat: its own and that of children that have ended and
  // that it waited for.
  uint64_t ticks = 0;
};

// The process `root`, its descendants in any group or session, and processes of its group whose
// parent is gone. A server's process that computes is its child, in a group of its own. Empty
// without /proc, or if there is no such process.
std::vector<TreeProcess> ProcessTree(pid_t root);

// When a process started, in ticks since the machine did; 0: unknown.
uint64_t StartTicks(pid_t process);

}  // namespace pinion::harness
