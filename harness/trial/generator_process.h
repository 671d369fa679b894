#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "harness/load/exchange.h"

namespace pinion::harness {

// A load generator in a process of its own, so that it can have CPUs of its own, and its CPU time
// and memory are not mixed with those of the trial. Thread rule: one thread.
class GeneratorProcess {
 public:
  // On `cpus`; unset: wherever this process may run. Errors (kIo): no process can be started.
  static Result<std::unique_ptr<GeneratorProcess>> Start(
      const std::optional<std::vector<int>>& cpus);
  virtual ~GeneratorProcess() = default;  // ends it

  // Runs a load to its end. `why_stop` is asked five times a second: a text ends the load, and the
  // process with it, with that error (kFailed). Errors (kFailed): the process ended, or cannot run
  // the load.
  virtual Result<ServerLoadResult> Send(const LoadedServer& server, const LoadPlan& plan,
                                        const std::function<std::string()>& why_stop) = 0;
};

// The hidden command that runs in it: one order a line on standard input, one result a line on
// standard output, until the input ends. Returns its exit code.
int RunGenerator();
inline constexpr char kGeneratorCommand[] = "load-generator";

}  // namespace pinion::harness
