#pragma once

#include <sys/types.h>

#include <vector>

namespace pinion::harness {

// The processes that accept connections to a TCP port of this machine. Empty if there is none, or
// if its owner is not known: it belongs to another user, or runs in another network namespace.
std::vector<pid_t> ListeningProcesses(int port);

// Whether a port that was meant for process `root`, or for its children, is another's: all known
// listeners are older than `root` and outside its tree. Later ones may act for it: a container's
// proxy, a job step of Slurm.
bool ListensAStranger(int port, pid_t root);

}  // namespace pinion::harness
