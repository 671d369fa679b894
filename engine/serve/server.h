#pragma once

#include <cstdint>
#include <string>

#include "engine/base/result.h"
#include "engine/run/options.h"

namespace pinion {

struct ServeOptions {
  EngineOptions engine;
  std::string host = "127.0.0.1";
  uint16_t port = 8000;           // 0: any free port
  std::string served_model_name;  // empty: engine.model
  std::string trace;              // file that both processes write their spans to; empty: none
  double drain_seconds = 30;      // time for live requests to finish after SIGTERM
};

// Runs the front end: listens, starts the engine process (this executable's hidden command
// `engine-worker`), pins itself to the CPUs that the plan reserves, serves until a signal. Returns
// the exit code: 0 after a drain, 1 if the engine died; an error if the engine could not start.
Result<int> RunServer(const ServeOptions& options);

}  // namespace pinion
