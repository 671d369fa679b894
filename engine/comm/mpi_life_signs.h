#pragma once

#include <memory>

#include "engine/comm/heartbeat.h"

namespace pinion {

// Signs of life by MPI, between all processes: a link that only two followers use may break. Needs
// MPI_THREAD_MULTIPLE: they travel while other threads make calls. Collective: all processes make
// theirs at the same place.
std::unique_ptr<LifeSigns> MakeMpiLifeSigns();

}  // namespace pinion
