#pragma once

#include <optional>

#include "engine/comm/world.h"

// Facts that MPI's launchers tell a process, without a call of MPI: see world.h.

namespace pinion {

// By Open MPI's mpirun, or by srun --mpi=pmix.
std::optional<LaunchedProcess> LaunchedByMpi();

// Unless it is told otherwise, Open MPI gives each process one core, though a process of Pinion has
// threads for all the cores that it can get. If nobody asked for that, this is the nearest ancestor
// that Open MPI did not start, mostly its own daemon.
std::optional<int> MpiLauncherWithCpus();

void ForgetMpi();

}  // namespace pinion
