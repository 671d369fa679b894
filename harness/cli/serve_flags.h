#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "engine/base/result.h"
#include "engine/serve/options.h"
#include "harness/cli/chat_flags.h"
#include "harness/cli/engine_flags.h"
#include "harness/cli/gate_flags.h"

namespace pinion::harness {

// The flags of `serve`. Those with a unit are kept as strings until Resolve.
class ServeFlags {
 public:
  // Adds MODEL, the engine's flags and the server's. The object must outlive parsing.
  void AddTo(CLI::App& command);
  // Errors are kUsage.
  Result<ServeOptions> Resolve() const;

 private:
  void AddHttp(CLI::App& command);     // addresses, names, HTTPS
  void AddLimits(CLI::App& command);   // limits of requests
  void AddFaults(CLI::App& command);   // restarts, timeouts, shutdown
  void AddPrefill(CLI::App& command);  // division of prompts among engines
  Status ResolvePrefill(ServeOptions& options) const;
  Status ResolveHttp(HttpRules& rules) const;

  EngineFlags engine_;
  ChatFlags chat_;
  GateFlags gate_;
  ServeOptions options_;  // flags without a unit write here
  std::string role_, max_body_size_, request_memory_, request_timeout_, engine_timeout_,
      shutdown_timeout_;
  std::string header_timeout_, sse_keep_alive_interval_, from_profile_;
};

}  // namespace pinion::harness
