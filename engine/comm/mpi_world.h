#pragma once

#include <memory>

#include "engine/base/result.h"
#include "engine/comm/communicator.h"

namespace pinion {

// All processes that were launched together by MPI, whose library is loaded into this process until
// the world is destroyed: the last call of it. Waits for all others to join; once a process.
// kUnsupported: the library lacks MPI_THREAD_MULTIPLE.
Result<std::unique_ptr<Communicator>> JoinMpiWorld();

}  // namespace pinion
