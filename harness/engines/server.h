#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "harness/engines/command.h"
#include "harness/load/server_url.h"

namespace pinion::harness {

// An engine's server in a process of its own, running. It is in a process group of its own, with
// everything that it starts; the group is ended with this object, and by its guard should this
// process be killed. No other process is ever signalled.
class EngineServer {
 public:
  // Starts it; its output goes to `log_fd`. Errors (kIo): no process can be started.
  static Result<std::unique_ptr<EngineServer>> Start(const EngineCommand& command, int port,
                                                     int log_fd);
  virtual ~EngineServer() = default;  // stops it: SIGTERM, then SIGKILL after 10 s

  // Waits until the engine's `health` answers 200, or /v1/models if there is no such path. Errors:
  // it ended, with its exit code (kFailed); it was not ready `patience_s` after its start
  // (kTimeout); interrupted (kExhausted).
  virtual Status WaitUntilReady(const EngineChoice& engine, double patience_s,
                                const std::function<bool()>& interrupted) = 0;

  virtual const ServerUrl& url() const = 0;
  virtual double start_s() const = 0;                // from its start to its first healthy answer
  virtual std::vector<pid_t> processes() const = 0;  // its own and their descendants, now
  // The sum of their peak resident memory: PeakMemoryBytes.
  virtual uint64_t peak_rss_bytes() const = 0;
  // How it ended: "ended with exit code 3"; empty if it still runs after `patience_s`.
  virtual std::string WhyEnded(double patience_s) = 0;
};

// A free port of 127.0.0.1.
Result<int> FreePort();

// The hidden command between this process and such a server (its arguments as one JSON list): runs
// `arguments` in its own process group and returns their exit code; when standard input ends (its
// parent is gone), kills its whole group.
int GuardServer(const std::vector<std::string>& arguments);
inline constexpr char kGuardCommand[] = "server-guard";

}  // namespace pinion::harness
