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
  size_t local = 0, locals = 1;  // among those on this host
  // Whether the launcher leaves all of the host's CPUs to each of them, so that they must divide
  // them themselves; otherwise each has CPUs of its own.
  bool shares_cpus = false;
};
std::optional<LaunchedProcess> LaunchedByMpi();

// Unless it is told otherwise, Open MPI gives each process one core, though a process of Pinion has
// threads for all the cores that it can get. If nobody asked for that, this is the process whose
// CPUs to take instead: the nearest ancestor that Open MPI did not start, mostly its own daemon.
std::optional<int> LauncherWithCpus();

// From now on this process counts as one that was started alone: a child of it, started before, is
// in its place.
void LeaveMpiToChild();

// Joins the processes that were launched together, at the first call, for the rest of this
// process's life; null if it is the only one. Waits for all others to join.
Result<Communicator*> JoinMpiWorld();

// Leaves them, if this process joined: the last collective call.
void LeaveMpiWorld();

}  // namespace pinion
