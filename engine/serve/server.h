#pragma once

#include "engine/base/result.h"
#include "engine/serve/options.h"

namespace pinion {

// Runs the front end: listens, starts the engine process (this executable's hidden command
// `engine-worker`), pins itself to the CPUs that the plan reserves, serves until a signal. Returns
// the exit code: 0 after a drain, 1 if the engine died; an error if the engine could not start.
Result<int> RunServer(ServeOptions options);

}  // namespace pinion
