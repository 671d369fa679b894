#pragma once

#include <sys/types.h>

#include <vector>

namespace pinion::harness {

// The processes that accept connections to a TCP port of this machine. Empty if there is none, or
// if its owner is not known: it belongs to another user, or runs in another network namespace.
std::vector<pid_t> ListeningProcesses(int port);

}  // namespace pinion::harness
