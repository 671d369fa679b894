#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "harness/engines/command.h"
#include "harness/load/http_client.h"

namespace pinion::harness {

// Another engine's server, running. It is in a process group of its own, with everything that it
// starts; the group is ended with this object, and by its guard should this process be killed. No
// other process is ever signalled. Its output goes to this process's standard error.
class EngineServer {
 public:
  // Starts it and waits until `health` answers 200, or /v1/models where there is no such path.
  // Errors (kFailed): it cannot be started, it ended (with its exit code), or took longer than the
  // choice's start_timeout_s; kExhausted: interrupted.
  static Result<std::unique_ptr<EngineServer>> Start(const EngineChoice& engine,
                                                     const EngineCommand& command, int port,
                                                     const std::function<bool()>& interrupted);
  virtual ~EngineServer() = default;  // stops it: SIGTERM, then SIGKILL after 10 s

  virtual const ServerUrl& url() const = 0;
  virtual double start_s() const = 0;                // from its start to its first healthy answer
  virtual std::vector<pid_t> processes() const = 0;  // of its group, now
  // Peak resident memory of the group's processes, added up (pages that they share count each
  // time).
  virtual uint64_t peak_rss_bytes() const = 0;
  // How it ended, where it did: "ended with exit code 3"; empty while it runs.
  virtual std::string WhyEnded() = 0;
};

// A port of 127.0.0.1 that nobody listens on now.
Result<int> FreePort();

// The hidden command between us and such a server (its arguments as one JSON list): runs
// `arguments` in its own process group and returns their exit code; when standard input ends (its
// parent is gone), kills its whole group.
int GuardServer(const std::vector<std::string>& arguments);
inline constexpr char kGuardCommand[] = "server-guard";

}  // namespace pinion::harness
