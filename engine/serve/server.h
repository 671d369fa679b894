#pragma once

#include <cstdint>
#include <string>

#include "engine/base/result.h"
#include "engine/run/options.h"

namespace pinion {

struct ServeOptions {
  EngineOptions engine;
  std::string host = "127.0.0.1";
  uint16_t port = 8000;           // 0: any free one
  std::string served_model_name;  // empty: the model as it was asked for
  std::string trace;              // file that both processes write their spans to; empty: none
  double drain_seconds = 30;      // how long live requests may go on after SIGTERM
};

// The front end's whole life: listens, starts the engine process (this executable's hidden command
// `engine-worker`), pins itself to the CPUs that the plan reserves, serves until a signal. Returns
// the exit code: 0 after a drain, 1 where the engine died; an error where it could not start.
Result<int> RunServer(const ServeOptions& options);

}  // namespace pinion
