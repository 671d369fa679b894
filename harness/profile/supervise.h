#pragma once

#include <functional>
#include <vector>

#include "engine/base/result.h"
#include "harness/profile/launch.h"

namespace pinion::harness {

// Starts all servers and waits until `stopped` says so or one of them ends; then ends all the
// others (SIGTERM, after 35 s SIGKILL) and returns. They share this process's output, and none
// outlives it. Errors: one cannot be started (kIo), or ended by itself (kFailed), with its number
// and how.
Status Supervise(const std::vector<LaunchedServer>& servers, const std::function<bool()>& stopped);

}  // namespace pinion::harness
