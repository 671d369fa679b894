#pragma once

#include <optional>
#include <vector>

#include "engine/run/engine.h"
#include "engine/run/options.h"
#include "engine/serve/link.h"

namespace pinion {

// Steps `engine` for the front end at the other end of `link` until that end closes. Blocks in poll
// while idle. A front end that reads slowly loses nothing: events wait in memory. A recording is
// written by a thread on `cpus` (none: where the caller runs), beside the steps.
void ServeLink(Engine& engine, LinkSocket& link, const std::vector<int>& cpus = {});

// Runs the engine process, with the descriptors of engine_process.h: starts the engine, reports
// ready or failed on its link, serves. Returns the exit code. With a rate, the engine is a
// stand-in.
int RunEngineWorker(const EngineOptions& options, std::optional<double> stand_in_rate = {});

}  // namespace pinion
