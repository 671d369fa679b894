#pragma once

#include <memory>

#include "engine/comm/heartbeat.h"

namespace pinion {

// Signs of life by MPI, between process 0 and each other one. Needs MPI_THREAD_MULTIPLE: they
// travel while other threads make calls. Collective: all processes make theirs at the same place.
std::unique_ptr<LifeSigns> MakeMpiLifeSigns();

}  // namespace pinion
