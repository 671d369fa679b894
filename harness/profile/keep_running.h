#pragma once

#include <sys/types.h>

#include <functional>
#include <limits>

#include "engine/base/restart_policy.h"
#include "engine/base/result.h"
#include "harness/profile/command.h"

namespace pinion::harness {

struct KeepRunningOptions {
  RestartPolicy pauses{std::numeric_limits<int>::max(), 600, 1};  // 1 s, doubled to 30 s
  // Starts in a row that may fail before the server has been ready for the first time, and later:
  // a configuration that has worked gets half an hour, in which another host may boot.
  int most_failed_starts = 5, most_failed_restarts = 60;
  double look_s = 0.2;  // how often is_ready is asked, until it is
};

// Whether a server answers where this one will: process `server`, or a child of it; 0: any.
using AnswersAs = std::function<bool(pid_t server)>;

// Runs the server, and starts it again when a signal or an exit code other than 0 and 2 (bad usage)
// ends it. SIGHUP is passed on to it, as SIGTERM and SIGINT are, which are the end once it has
// ended. It is killed with this process. To be called before there are threads.
//
// Returns the server's exit code. Errors (kFailed): it was not ready so often in a row.
Result<int> KeepRunning(const Command& server, KeepRunningOptions options, AnswersAs is_ready);

}  // namespace pinion::harness
