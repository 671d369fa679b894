#pragma once

#include "engine/run/engine.h"
#include "engine/run/options.h"
#include "engine/serve/link.h"

namespace pinion {

// Steps `engine` for whoever is at the other end of `link` until that end closes. Blocks in poll
// where there is nothing to do. A front end that reads slowly loses nothing: events wait in memory.
void ServeLink(Engine& engine, LinkSocket& link);

// The engine process's whole life: starts the engine, says ready or failed on descriptor `link_fd`,
// serves. Returns the exit code.
int RunEngineWorker(const EngineOptions& options, int link_fd);

}  // namespace pinion
