#pragma once

#include <cstddef>
#include <optional>

#include "engine/base/result.h"
#include "engine/comm/communicator.h"

namespace pinion {

// This process's number among those that a launcher of MPI (mpirun, srun --mpi=pmix) started
// together, from the environment alone; nothing if it is the only one.
struct LaunchedProcess {
  size_t process = 0, processes = 1;
};
std::optional<LaunchedProcess> LaunchedByMpi();

// From now on this process counts as one that was started alone: a child of it, started before, is
// in its place.
void LeaveMpiToChild();

// Joins the processes that were launched together, at the first call, for the rest of this
// process's life; null if it is the only one. Waits for all others to join.
Result<Communicator*> JoinMpiWorld();

// Leaves them, if this process joined: the last collective call.
void LeaveMpiWorld();

}  // namespace pinion
